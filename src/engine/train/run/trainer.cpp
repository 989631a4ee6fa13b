// Train(): from a configuration to the files of a run.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/exception_line.h"
#include "base/files.h"
#include "base/log.h"
#include "base/result.h"
#include "base/system/cores.h"
#include "base/system/free_space.h"
#include "base/text/wrap.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/crc32.h"
#include "config/replicas.h"
#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "config/state_format.h"
#include "config/train_config.h"
#include "graph/device/device_queue.h"
#include "graph/ops/bf16_kernels.h"
#include "runtime/measure/gather_trace.h"
#include "runtime/processes/collectives.h"
#include "schedule/schedule.h"
#include "schedule/text/text.h"
#include "train/c10d/device_edges.h"
#include "train/data/bigram.h"
#include "train/data/run_tokenizer.h"
#include "train/data/training_data.h"
#include "train/evaluation/distributed_model.h"
#include "train/evaluation/held_out.h"
#include "train/evaluation/write_text.h"
#include "train/guard.h"
#include "train/huggingface/follow_weights.h"
#include "train/memory/memory_need.h"
#include "train/run/checkpoint_writer.h"
#include "train/run/pipeline.h"
#include "train/run/rank_log.h"
#include "train/run/results.h"
#include "train/run/resume.h"
#include "train/run/run_checks.h"
#include "train/run/run_context.h"
#include "train/run/run_folder.h"
#include "train/run/step_log.h"
#include "train/run/step_runner.h"
#include "train/run/superseded.h"

namespace penstock {
namespace {

// Returns the checksum of this process's executable file.
Result<std::string> ProgramChecksum() {
  PENSTOCK_TRY(const std::string program, ReadFile("/proc/self/exe"));
  return FormatCrc32(Crc32(program));
}

std::string NameOf(const Collectives& processes, int process) {
  return processes.group()->NameOf(process);
}

// Returns an error on all processes if they run different builds of this program: they might not
// compute the same bits. Called on all processes, before anything else is exchanged.
Status CheckSameProgram(Collectives& processes) {
  if (processes.processes() == 1) return {};
  // A process that cannot read its program is not refused.
  PENSTOCK_TRY(const std::vector<std::string> all,
               processes.AllGather(ProgramChecksum().value_or("")));
  for (int process = 1; process < processes.processes(); ++process) {
    if (all[process] == all[0] || all[process].empty() || all[0].empty()) continue;
    return InvalidArgument(
        "{} runs another build of Penstock than {} (checksums {} and {}): install the same on all "
        "processes",
        NameOf(processes, process), NameOf(processes, 0), all[process], all[0]);
  }
  return {};
}

// Returns an error on all processes if they have different configurations or schedules.
Status CheckSameRun(Collectives& processes, const TrainConfig& config, const Schedule& schedule) {
  if (processes.processes() == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> configs, processes.AllGather(ToYaml(config)));
  PENSTOCK_TRY(const std::vector<std::string> schedules, processes.AllGather(WriteCsv(schedule)));
  for (int process = 1; process < processes.processes(); ++process) {
    PENSTOCK_TRY(const TrainConfig first,
                 ParseTrainConfig(configs[0], "process 0's configuration"));
    PENSTOCK_TRY(const TrainConfig other,
                 ParseTrainConfig(configs[process], "a process's configuration"));
    for (const KeyDifference& differs : DifferentKeys(first, other)) {
      return InvalidArgument("{} is {} on {} and {} on {}: start all processes with the same",
                             differs.key, differs.before, NameOf(processes, 0), differs.now,
                             NameOf(processes, process));
    }
    if (schedules[process] == schedules[0]) continue;
    return InvalidArgument("{} and {} have different schedules: start all processes with the same",
                           NameOf(processes, 0), NameOf(processes, process));
  }
  return {};
}

constexpr const char* kBf16InFp32 =
    "bf16: this processor has no bf16 instructions; matmuls and attention are computed in fp32 and "
    "rounded to bf16";

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OwnFile = std::unique_ptr<std::FILE, CloseFile>;

Result<LocalRanks> RanksOf(const TrainOptions& options, const Collectives& processes, int ranks) {
  if (options.process_of.empty())
    return LocalRanks::Split(ranks, processes.processes(), processes.process());
  PENSTOCK_TRY(LocalRanks own,
               LocalRanks::Of(options.process_of, processes.processes(), processes.process()));
  if (own.ranks() == ranks) return own;
  return InvalidArgument("processes are given for {} ranks, but the run has {}", own.ranks(),
                         ranks);
}

// Returns the number of parameters of the whole model on the leader. Called on all processes.
Result<std::int64_t> CountParameters(Collectives& processes, const LanguageModel& model,
                                     const ParallelConfig& parallel) {
  std::map<std::string, std::int64_t> sizes;
  ByteWriter writer;
  std::map<std::string, ParameterPart> parts;
  for (const auto& stage : model.stages) {
    if (stage != nullptr) parts.merge(PartsOf(*stage));
  }
  for (const auto& [name, value] : model.Parameters()) {
    writer.PutText(name);
    std::int64_t elements = value.numel();
    if (IsPerExpert(model.config, name)) elements *= parallel.expert;
    if (const auto part = parts.find(name); part != parts.end()) elements *= part->second.parts;
    writer.Put(elements);
  }
  PENSTOCK_TRY(const std::vector<std::string> all, processes.ToLeader(writer.Take()));
  for (const std::string& bytes : all) {
    for (ByteReader reader(bytes); !reader.at_end();) {
      const std::string name = reader.GetText();
      sizes[name] = reader.Get<std::int64_t>();
    }
  }
  if (parallel.shard_vocabulary) {
    PENSTOCK_TRY(const VocabularyTables tables, VocabularyTablesOf(model.config));
    for (const std::string& name : tables.names()) {
      sizes[name] = model.config.vocabulary * model.config.dim;
    }
  }
  std::int64_t parameters = 0;
  for (const auto& [name, size] : sizes) parameters += size;
  return parameters;
}

void PrintStart(const RunContext& run, const TrainingData& data, std::int64_t parameters) {
  const TrainConfig& config = run.config;
  std::FILE* const log = run.log();
  constexpr std::size_t kWidth = 100, kIndent = 2;
  const std::string settings = fmt::format("settings: {}", fmt::join(ChangedKeys(config), " "));
  Log(log, "{}\n", Wrap(settings, kWidth, kIndent));
  Log(log, "{}\n", data.description);
  Log(log, "tokenizer: {}, {} tokens\n", data.tokenizer.name(),
      data.tokenizer.tokenizer->vocabulary_size());
  Log(log, "model: {:.2f} million parameters, {} layers in {} stages on {} ranks ({}){}{}\n",
      static_cast<double>(parameters) * 1e-6, config.model.layers, config.pipeline.stages,
      config.pipeline.ranks,
      config.pipeline.csv.empty() ? config.pipeline.schedule : config.pipeline.csv,
      config.parallel.data > 1 ? fmt::format(", {} replicas", config.parallel.data) : "",
      (config.parallel.context > 1 ? fmt::format(", {} context ranks", config.parallel.context)
                                   : "") +
          (config.parallel.tensor > 1 ? fmt::format(", {} tensor ranks", config.parallel.tensor)
                                      : ""));
  std::fflush(log);
}

void PrintUpdates(const std::vector<StepMetric>& metrics, std::FILE* log) {
  const auto count = [&](bool StepMetric::*is) { return std::ranges::count(metrics, true, is); };
  Log(log, "gradients: {} of {} steps clipped, {} skipped\n", count(&StepMetric::clipped),
      metrics.size(), count(&StepMetric::skipped));
}

// Whether most steps were clipped or skipped.
bool MostAreAmended(const std::vector<StepMetric>& metrics) {
  const auto amended = std::ranges::count_if(
      metrics, [](const StepMetric& metric) { return metric.clipped || metric.skipped; });
  return 2 * amended > std::ssize(metrics);
}

// Returns the process of each stage of the model.
std::vector<int> ProcessesOfStages(const Schedule& schedule, const LocalRanks& ranks) {
  std::vector<int> processes;
  for (int stage = 0; stage < schedule.placement.chain_length(); ++stage) {
    processes.push_back(ranks.process_of(schedule.placement.rank_of(stage)));
  }
  return processes;
}

// The model of a run on all processes, and its held-out loss.
struct Evaluation {
  DistributedModel model;
  HeldOutLoss loss;

  Evaluation(const RunContext& run, const TrainingData& data, Pipeline& pipeline)
      : model(pipeline.model, ProcessesOfStages(run.schedule, run.RanksOf(0)),
              run.processes.group(), run.options.stop),
        loss({model, data.held_out(), run.options.cores,
              [&] { GatherWeights(pipeline, run.schedule); },
              [&] { DropGatheredWeights(pipeline); }}) {}
};

// Computes the held-out loss and generates the passage. Sets summary.interrupted.
Status EvaluateModel(const RunContext& run, const TrainingData& data, Evaluation& evaluation,
                     TrainSummary& summary) {
  const TrainConfig& config = run.config;
  summary.held_out_loss = evaluation.loss.AfterLast(summary.steps);
  PENSTOCK_TRY(summary.interrupted, run.StopRequested());
  if (summary.interrupted) return {};
  if (!std::isfinite(summary.held_out_loss)) {
    return MakeError(ErrorCode::kUnavailable,
                     "the held-out loss is {}, so the weights in {} are useless: train with a "
                     "smaller optimizer.lr",
                     summary.held_out_loss, summary.saved);
  }
  if (run.processes.leads() && data.is_bytes()) {
    const Corpus& corpus = *data.bytes;
    summary.baseline_loss =
        Bigram(corpus.train).MeanNats(EvaluatedPart(corpus.held_out, config.model.sequence));
  }
  WriteOptions write;
  write.tokens = config.sample;
  write.seed = config.seed;
  if (!data.is_bytes()) write.tokenizer = data.tokenizer.tokenizer.get();
  summary.passage = WriteText(evaluation.model, write);
  PENSTOCK_TRY(summary.interrupted, run.StopRequested());
  return {};
}

// The work after the last step. Writes the weights first, because a stop may end the rest.
Status Finish(const RunContext& run, const TrainingData& data, const StepRunner& runner,
              StepLog& log, Evaluation& evaluation, const LanguageModel& model,
              TrainSummary& summary) {
  Collectives& processes = run.processes;
  summary.tokens_per_second =
      runner.steps_per_second() * static_cast<double>(TokensPerStep(run.config));
  PENSTOCK_TRY_STATUS(WriteWeights(run, model, runner.seconds(), summary));
  summary.saved = summary.files.back();
  if (processes.leads()) PENSTOCK_TRY_STATUS(CheckSkipped(log.metrics()));
  PENSTOCK_TRY_STATUS(EvaluateModel(run, data, evaluation, summary));
  if (summary.interrupted || runner.trace() == nullptr) return {};
  PENSTOCK_TRY_STATUS(GatherTrace(processes, run.RanksOf(0), run.clock, *runner.trace()));
  if (!processes.leads()) return {};
  PENSTOCK_TRY(const Comparison comparison,
               Compare(*runner.trace(), !run.config.data.lengths.empty(),
                       run.config.optimizer.post_validation && MostAreAmended(log.metrics())));
  Summarize(comparison, runner.first_traced(), summary);
  return WriteReports(run, log, comparison, summary);
}

// The weights, and a checkpoint if the run writes some. Others are as large as what the user keeps.
std::int64_t BytesOfLastFiles(const TrainConfig& config, std::int64_t parameters) {
  double each = kFp32StateBytes;
  if (WritesCheckpoints(config)) {
    const StateFormat format = StateFormatOf(config);
    each += format.updated() + format.optimizer;
  }
  return static_cast<std::int64_t>(each * static_cast<double>(parameters));
}

// Counts the parameters on all processes. Moves superseded files, writes the first files and logs
// the start on the leader.
Status BeginRun(const RunContext& run, const TrainingData& data, const RunStart& start,
                const LanguageModel& model, const std::vector<std::string>& notes,
                TrainSummary& summary) {
  PENSTOCK_TRY(const std::int64_t parameters,
               CountParameters(run.processes, model, run.config.parallel));
  if (run.processes.leads()) {
    PENSTOCK_TRY_STATUS(SetAsideSuperseded(run, start));
    PENSTOCK_TRY_STATUS(CheckFreeSpace(run.path(), BytesOfLastFiles(run.config, parameters),
                                       "the run's last files"));
    PENSTOCK_TRY_STATUS(WriteStartFiles(run, summary));
    PENSTOCK_TRY_STATUS(CopyTokenizer(data.tokenizer, run.path()));
    PrintStart(run, data, parameters);
    for (const std::string& note : notes) Log(run.log(), "{}\n", note);
  }
  return LogMesh(run);
}

// Prints why the run ended before its last step, and its best checkpoint.
void PrintBest(const RunContext& run, const StepRunner& runner) {
  const HeldOutMetric& best = runner.best().best();
  if (best.step < 0) return;
  const std::int64_t patience = run.config.validation.patience;
  if (patience > 0 && runner.best().since() >= patience) {
    Log(run.log(),
        "stopped early after step {}: {} evaluations in a row have not lowered the loss\n",
        runner.steps(), runner.best().since());
  }
  const std::string folder = CheckpointFolder(run.path());
  const bool kept = run.config.checkpoint.best && BestStep(folder) == best.step + 1;
  Log(run.log(), "lowest held-out loss: {:.4f} after step {}{}\n", best.loss, best.step + 1,
      kept ? ", kept in " + BestPath(folder) : "");
}

// Runs the steps from `first` on. Fills in the summary's steps, files and checkpoint.
Status RunSteps(const RunContext& run, std::int64_t first, StepRunner& runner, StepLog& log,
                CheckpointWriter& checkpoints, TrainSummary& summary) {
  PENSTOCK_TRY_STATUS(runner.Run(first));
  if (const int skipped = checkpoints.skipped(); skipped > 0) {
    Log(run.log(),
        "{} checkpoints were skipped because a rank had not reached the previous one yet\n",
        skipped);
  }
  if (UpdateRuleOf(run.config.optimizer).needs_norm()) PrintUpdates(log.metrics(), run.log());
  if (run.processes.leads()) {
    PENSTOCK_TRY_STATUS(run.folder->Check());
    PENSTOCK_TRY_STATUS(FailedRun(log.OpenFile()));
    PrintBest(run, runner);
  }
  const std::vector<std::string> files = log.files();
  summary.files.insert(summary.files.end(), files.begin(), files.end());
  summary.steps = runner.steps();
  summary.interrupted = runner.ended_early();
  if (!summary.interrupted) {
    summary.planned_steps = summary.steps;
  } else if (summary.steps > first) {
    summary.saved = CheckpointPath(CheckpointFolder(run.path()), summary.steps);
  }
  return {};
}

// Leaves out stages without collectives.
std::vector<std::pair<int, CollectivesOfStage>> CollectivesOf(const Pipeline& pipeline) {
  std::vector<std::pair<int, CollectivesOfStage>> all;
  for (std::size_t stage = 0; stage < pipeline.stages.size(); ++stage) {
    if (!pipeline.stages[stage]) continue;
    CollectivesOfStage counts = pipeline.stages[stage]->CountedCollectives();
    if (counts == CollectivesOfStage()) continue;
    all.emplace_back(static_cast<int>(stage), std::move(counts));
  }
  return all;
}

Result<TrainSummary> TrainFrom(const RunContext& run, const TrainingData& data, RunStart start,
                               const std::vector<std::string>& notes) {
  auto built = BuildPipeline(run, MakeBatchSource(data.samples, run));
  TrainSummary summary;
  summary.unit = data.unit();
  summary.steps = start.step();
  summary.planned_steps = run.config.steps;
  // Checked before the result, because an interrupted pipeline lacks stages.
  PENSTOCK_TRY(summary.interrupted, run.StopRequested());
  if (summary.interrupted) return summary;
  PENSTOCK_TRY(Pipeline pipeline, OnAll(run.processes, std::move(built)));
  PENSTOCK_TRY_STATUS(RestoreStart(run, pipeline, start));
  ContinueData(run, start, data);
  summary.steps = start.step();
  PENSTOCK_TRY_STATUS(BeginRun(run, data, start, pipeline.model, notes, summary));
  StepLog log(run, *pipeline.rate, start);
  const std::int64_t first = start.step();
  BestLoss best(start.held_out);
  start = {};  // closes the checkpoint
  CheckpointWriter checkpoints(run, data.samples,
                               [&](int rank) { return RankState(pipeline, run.schedule, rank); });
  Evaluation evaluation(run, data, pipeline);
  StepRunner runner(run, pipeline, log, checkpoints, evaluation.loss, best);
  PENSTOCK_TRY_STATUS(RunSteps(run, first, runner, log, checkpoints, summary));
  if (summary.interrupted) return summary;
  PENSTOCK_TRY_STATUS(LogMemory(run, pipeline));
  PENSTOCK_TRY_STATUS(LogDevice(run, pipeline));
  GatherWeights(pipeline, run.schedule);
  summary.collectives = CollectivesOf(pipeline);
  PENSTOCK_TRY_STATUS(Finish(run, data, runner, log, evaluation, pipeline.model, summary));
  return summary;
}

// Adds a line if the ranks leave devices idle that the configuration does not rule out.
void NoteIdleDevices(const RunContext& run, c10::Device device, std::vector<std::string>& notes) {
  const int devices = DevicesLike(device);
  const bool may_be_others = run.processes.processes() == 1 && run.config.device != device.str();
  if (devices == 1 || !may_be_others) return;
  notes.push_back(
      fmt::format("device: all ranks of this process train on {}, one of {} such devices: to use "
                  "the others, start a process for each (mpirun -n {})",
                  device.str(), devices, devices));
}

// Checks that need neither the text nor the weights. Returns lines for the log.
Result<std::vector<std::string>> CheckBeforeStart(const RunContext& run) {
  // Before any other use of PyTorch, which then would not see the device.
  PENSTOCK_TRY(const c10::Device device, OnAll(run.processes, OpenDevice(run.config.device)));
  PENSTOCK_TRY_STATUS(CheckModel(run.config.model));
  PENSTOCK_TRY(std::vector<std::string> notes, CheckRun(run.config));
  PENSTOCK_TRY(notes.emplace_back(),
               OnAll(run.processes, CheckMemoryNeed(run.config, run.schedule, run.ranks)));
  if (device.is_cpu() && run.config.precision == "bf16" && NeedsBf16Kernels())
    notes.emplace_back(kBf16InFp32);
  NoteIdleDevices(run, device, notes);
  return notes;
}

// Chooses a rank per process, if the configuration leaves the number of ranks open.
void ChooseRanks(const Collectives& processes, TrainConfig& config) {
  const bool is_open = config.pipeline.ranks == 0 && config.pipeline.csv.empty();
  if (!is_open || processes.processes() == 1) return;
  const int pipelines = config.parallel.data * Planes(config.parallel).ranks();
  config.pipeline.ranks = std::max(2, processes.processes() / pipelines);
}

Result<TrainSummary> TrainOnProcess(TrainConfig config, const TrainOptions& options,
                                    Collectives& processes) {
  PENSTOCK_TRY_STATUS(CheckSameProgram(processes));
  ChooseRanks(processes, config);
  PENSTOCK_TRY(const std::vector<std::string> of_weights, OnAll(processes, FollowWeights(config)));
  PENSTOCK_TRY_STATUS(processes.All(SetDocumentEnd(config)));
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, Cores()));
  PENSTOCK_TRY_STATUS(CheckSameRun(processes, config, schedule));
  PENSTOCK_TRY(LocalRanks ranks,
               RanksOf(options, processes, MeshOfPlanes(config.parallel, schedule).ranks()));
  RunContext run{config, schedule, processes, std::move(ranks), options};
  if (options.cores <= 0) run.options.cores = Cores();
  const OwnFile null_log(processes.leads() ? nullptr : std::fopen("/dev/null", "w"));
  if (null_log) run.options.log = null_log.get();
  PENSTOCK_TRY(run.clock, processes.MeasureClock());
  PENSTOCK_TRY(std::vector<std::string> notes, CheckBeforeStart(run));
  notes.insert(notes.begin(), of_weights.begin(), of_weights.end());
  std::unique_ptr<RunFolder> folder;
  if (processes.leads()) {
    PENSTOCK_TRY(folder, RunFolder::Open(run.path(), run.log()));
  }
  run.folder = folder.get();
  PENSTOCK_TRY(const TrainingData data, OnAll(processes, LoadTrainingData(config)));
  notes.insert(notes.end(), data.notes.begin(), data.notes.end());
  PENSTOCK_TRY(RunStart start, FindStart(run, data.tokenizer));
  config.resume.clear();  // the recorded configuration must start from the first step
  return TrainFrom(run, data, std::move(start), notes);
}

// Prefixes exceptions with this process's name; other processes do not see them.
Result<TrainSummary> TrainOnNamedProcess(const TrainConfig& config, const TrainOptions& options,
                                         Collectives& processes) {
  if (processes.processes() == 1) return TrainOnProcess(config, options, processes);
  try {
    return TrainOnProcess(config, options, processes);
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", processes.group()->NameOf(processes.process()),
                                         ExceptionLine(error)));
  }
}

Result<TrainSummary> TrainUnguarded(const TrainConfig& config, const TrainOptions& options) {
  Collectives processes(options.group);
  PENSTOCK_TRY(TrainSummary summary, TrainOnNamedProcess(config, options, processes));
  // A process must not leave the group before all processes are done.
  PENSTOCK_TRY_STATUS(processes.All(Status()));
  return summary;
}

// Connects the processes for data of the device first.
Result<TrainSummary> TrainByDevice(const TrainConfig& config, TrainOptions options) {
  PENSTOCK_TRY(const c10::Device device, OpenDevice(config.device));
  PENSTOCK_TRY(const auto group, ConnectByDevice(*options.group, device, config.transport));
  ProcessGroup& connected = *std::exchange(options.group, group.get());
  auto summary = Guard<TrainSummary>([&] { return TrainUnguarded(config, options); });
  if (!summary) group->Abort(summary.error());
  group->Leave();
  // It knows better why a process is lost.
  if (!summary && connected.aborted()) return tl::unexpected(connected.reason());
  return summary;
}

}  // namespace

Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options) {
  auto summary = Guard<TrainSummary>([&] {
    const bool by_device = config.transport != "host" && options.group != nullptr;
    return by_device ? TrainByDevice(config, options) : TrainUnguarded(config, options);
  });
  if (!summary && options.group != nullptr) options.group->Abort(summary.error());
  return summary;
}

}  // namespace penstock
