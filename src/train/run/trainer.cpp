// Train(): from a configuration to the files of a run.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>

#include "base/byte_stream.h"
#include "base/exception_line.h"
#include "base/log.h"
#include "base/system/cores.h"
#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "graph/ops/bf16_kernels.h"
#include "runtime/measure/gather_trace.h"
#include "runtime/processes/collectives.h"
#include "schedule/text/text.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/data/bigram.h"
#include "train/data/run_tokenizer.h"
#include "train/data/training_data.h"
#include "train/evaluation/distributed_model.h"
#include "train/evaluation/held_out.h"
#include "train/evaluation/write_text.h"
#include "train/guard.h"
#include "train/huggingface/follow_weights.h"
#include "train/memory/memory_need.h"
#include "train/run/memory_log.h"
#include "train/run/mesh_log.h"
#include "train/run/pipeline.h"
#include "train/run/results.h"
#include "train/run/resume.h"
#include "train/run/run_checks.h"
#include "train/run/run_folder.h"
#include "train/run/same_run.h"
#include "train/run/step_log.h"
#include "train/run/step_runner.h"
#include "train/run/superseded.h"
#include "train/train.h"

namespace penstock {
namespace {

constexpr const char* kBf16InFp32 =
    "bf16: this processor has no bf16 instructions; matmuls and attention are computed in fp32 and "
    "rounded to bf16";

// This process's part of a run.
struct ProcessPart {
  Collectives& processes;
  LocalRanks ranks;
  ClockOffset clock;
  int cores;
  std::FILE* log;  // discarded except on the leader
};

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
  return InvalidArgument("processes are given for {} ranks, but the schedule has {}", own.ranks(),
                         ranks);
}

// Returns the number of parameters of the whole model on the leader. Called on all processes.
Result<std::int64_t> CountParameters(Collectives& processes, const LanguageModel& model,
                                     const ParallelConfig& parallel) {
  std::map<std::string, std::int64_t> sizes;
  ByteWriter writer;
  for (const auto& [name, value] : model.Parameters()) {
    writer.PutText(name);
    writer.Put(IsPerExpert(model.config, name) ? value.numel() * parallel.expert : value.numel());
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

void PrintStart(const TrainConfig& config, const TrainingData& data, std::int64_t parameters,
                std::FILE* log) {
  Log(log, "{}\n", ToYaml(config));
  Log(log, "{}\n", data.description);
  Log(log, "tokenizer: {}, {} tokens\n", data.tokenizer.name(),
      data.tokenizer.tokenizer->vocabulary_size());
  Log(log, "model: {:.2f} million parameters, {} layers in {} stages on {} ranks ({}){}\n",
      static_cast<double>(parameters) * 1e-6, config.model.layers, config.pipeline.stages,
      config.pipeline.ranks,
      config.pipeline.csv.empty() ? config.pipeline.schedule : config.pipeline.csv,
      config.parallel.data > 1 ? fmt::format(", {} replicas", config.parallel.data) : "");
  std::fflush(log);
}

// Returns whether a stop was requested on any process.
Result<bool> StopRequested(Collectives& processes, const TrainOptions& options) {
  return processes.Any(options.stop != nullptr && options.stop->load());
}

void PrintUpdates(const std::vector<StepMetric>& metrics, std::FILE* log) {
  const auto count = [&](bool StepMetric::*is) { return std::ranges::count(metrics, true, is); };
  Log(log, "gradients: {} of {} steps clipped, {} skipped\n", count(&StepMetric::clipped),
      metrics.size(), count(&StepMetric::skipped));
}

// Returns the process of each stage of the model.
std::vector<int> ProcessesOfStages(const Schedule& schedule, const LocalRanks& ranks) {
  std::vector<int> processes;
  for (int stage = 0; stage < schedule.placement.chain_length(); ++stage) {
    processes.push_back(ranks.process_of(schedule.placement.rank_of(stage)));
  }
  return processes;
}

// A run on this process, after all checks.
struct PreparedRun {
  const TrainConfig& config;
  const TrainOptions& options;
  const Schedule& schedule;
  const ProcessPart& part;
  const RunFolder* folder;  // null except on the leader
  const TrainingData& data;
};

// The model of a run on all processes, and its held-out loss.
struct Evaluation {
  DistributedModel model;
  HeldOutLoss loss;

  Evaluation(const PreparedRun& run, Pipeline& pipeline)
      : model(pipeline.model, ProcessesOfStages(run.schedule, run.part.ranks),
              run.part.processes.group(), run.options.stop),
        loss({model, run.data.held_out(), run.part.cores,
              [&] { GatherWeights(pipeline, run.schedule); },
              [&] { DropGatheredWeights(pipeline); }}) {}
};

// Computes the held-out loss and generates the passage. Sets summary.interrupted.
Status EvaluateModel(const PreparedRun& run, Evaluation& evaluation, TrainSummary& summary) {
  const TrainConfig& config = run.config;
  Collectives& processes = run.part.processes;
  summary.held_out_loss = evaluation.loss.AfterLast(summary.steps);
  PENSTOCK_TRY(summary.interrupted, StopRequested(processes, run.options));
  if (summary.interrupted) return {};
  if (!std::isfinite(summary.held_out_loss)) {
    return MakeError(ErrorCode::kUnavailable,
                     "the held-out loss is {}, so the weights in {} are useless: train with a "
                     "smaller optimizer.lr",
                     summary.held_out_loss, summary.saved);
  }
  if (processes.leads() && run.data.is_bytes()) {
    const Corpus& corpus = *run.data.bytes;
    summary.baseline_loss =
        Bigram(corpus.train).MeanNats(EvaluatedPart(corpus.held_out, config.model.sequence));
  }
  WriteOptions write;
  write.tokens = config.sample;
  write.seed = config.seed;
  if (!run.data.is_bytes()) write.tokenizer = run.data.tokenizer.tokenizer.get();
  summary.passage = WriteText(evaluation.model, write);
  PENSTOCK_TRY(summary.interrupted, StopRequested(processes, run.options));
  return {};
}

// The work after the last step. Writes the weights first, because a stop may end the rest.
Status Finish(const PreparedRun& run, const StepRunner& runner, Evaluation& evaluation,
              RunRecord record, TrainSummary& summary) {
  Collectives& processes = run.part.processes;
  summary.tokens_per_second =
      runner.steps_per_second() * static_cast<double>(TokensPerStep(record.config));
  PENSTOCK_TRY_STATUS(WriteWeights(record, processes, summary));
  summary.saved = summary.files.back();
  if (processes.leads()) PENSTOCK_TRY_STATUS(CheckSkipped(record.metrics));
  PENSTOCK_TRY_STATUS(EvaluateModel(run, evaluation, summary));
  if (summary.interrupted) return {};
  Comparison comparison;
  if (runner.trace() != nullptr) {
    PENSTOCK_TRY_STATUS(GatherTrace(processes, run.part.ranks, run.part.clock, *runner.trace()));
    if (!processes.leads()) return {};
    PENSTOCK_TRY(comparison, Compare(*runner.trace(), !run.config.data.lengths.empty()));
    Summarize(comparison, runner.first_traced(), summary);
    record.schedule = &runner.trace()->schedule();
    record.comparison = &comparison;
  }
  return processes.leads() ? WriteReports(record, summary) : Status();
}

CheckpointWriterOptions CheckpointOptions(const PreparedRun& run, const Pipeline& pipeline) {
  CheckpointWriterOptions options;
  options.folder = CheckpointFolder(RunPath(run.config));
  if (run.folder != nullptr) options.check = [folder = run.folder] { return folder->Check(); };
  options.config = run.config;
  options.group = run.part.processes.group();
  options.ranks.resize(run.schedule.ranks());
  for (const int rank : run.part.ranks.here()) {
    options.ranks[rank] = [&pipeline, &schedule = run.schedule, rank] {
      return RankState(pipeline, schedule, rank);
    };
  }
  return options;
}

// Counts the parameters on all processes. Moves superseded files, writes the first files and logs
// the start on the leader.
Status BeginRun(const PreparedRun& run, const RunStart& start, const RunRecord& record,
                const std::vector<std::string>& notes, TrainSummary& summary) {
  const ProcessPart& part = run.part;
  PENSTOCK_TRY(const std::int64_t parameters,
               CountParameters(part.processes, *record.model, record.config.parallel));
  if (part.processes.leads()) {
    PENSTOCK_TRY_STATUS(SetAsideSuperseded(record, start, part.log));
    PENSTOCK_TRY_STATUS(WriteStartFiles(record, summary));
    PENSTOCK_TRY_STATUS(CopyTokenizer(run.data.tokenizer, RunPath(record.config)));
    PrintStart(record.config, run.data, parameters, part.log);
    for (const std::string& note : notes) Log(part.log, "{}\n", note);
  }
  const Mesh mesh{record.config.pipeline.ranks, record.config.parallel.data};
  return LogMesh(part.processes, part.ranks, mesh, part.log);
}

// Prints why the run ended before its last step, and its best checkpoint.
void PrintBest(const TrainConfig& config, const StepRunner& runner, std::FILE* log) {
  const HeldOutMetric& best = runner.best().best();
  if (best.step < 0) return;
  if (config.validation.patience > 0 && runner.best().since() >= config.validation.patience) {
    Log(log, "stopped early after step {}: {} evaluations in a row have not lowered the loss\n",
        runner.steps(), runner.best().since());
  }
  const std::string folder = CheckpointFolder(RunPath(config));
  const bool kept = config.checkpoint.best && BestStep(folder) == best.step + 1;
  Log(log, "lowest held-out loss: {:.4f} after step {}{}\n", best.loss, best.step + 1,
      kept ? ", kept in " + BestPath(folder) : "");
}

// Runs the steps from `first` on. Fills in the summary's steps, files and checkpoint.
Status RunSteps(const PreparedRun& run, std::int64_t first, StepRunner& runner, StepLog& log,
                CheckpointWriter& checkpoints, TrainSummary& summary) {
  std::FILE* const out = run.part.log;
  PENSTOCK_TRY_STATUS(runner.Run(first));
  if (const int skipped = checkpoints.skipped(); skipped > 0) {
    Log(out, "{} checkpoints were skipped because a rank had not reached the previous one yet\n",
        skipped);
  }
  if (UpdateRuleOf(run.config.optimizer).needs_norm()) PrintUpdates(log.metrics(), out);
  if (run.part.processes.leads()) {
    PENSTOCK_TRY_STATUS(run.folder->Check());
    PENSTOCK_TRY_STATUS(FailedRun(log.OpenFile()));
    PrintBest(run.config, runner, out);
  }
  const std::vector<std::string> files = log.files();
  summary.files.insert(summary.files.end(), files.begin(), files.end());
  summary.steps = runner.steps();
  summary.interrupted = runner.ended_early();
  if (!summary.interrupted) {
    summary.planned_steps = summary.steps;
  } else if (summary.steps > first) {
    summary.saved = CheckpointPath(CheckpointFolder(RunPath(run.config)), summary.steps);
  }
  return {};
}

// Returns the value if all processes have one, otherwise the error of one of them with its name.
template <class T>
Result<T> OnAll(Collectives& processes, Result<T> own) {
  PENSTOCK_TRY_STATUS(processes.All(own ? Status() : tl::unexpected(own.error())));
  return own;
}

Result<TrainSummary> TrainFrom(const PreparedRun& run, RunStart start,
                               const std::vector<std::string>& notes) {
  const TrainConfig& config = run.config;
  const ProcessPart& part = run.part;
  auto built = BuildPipeline(config, run.schedule, part.ranks, part.processes.group(),
                             MakeBatchSource(run.data.samples, config, run.schedule, part.ranks),
                             run.options.stop, part.log);
  TrainSummary summary;
  summary.unit = run.data.unit();
  summary.steps = start.step();
  summary.planned_steps = config.steps;
  // Checked before the result, because an interrupted pipeline lacks stages.
  PENSTOCK_TRY(summary.interrupted, StopRequested(part.processes, run.options));
  if (summary.interrupted) return summary;
  PENSTOCK_TRY(Pipeline pipeline, OnAll(part.processes, std::move(built)));
  PENSTOCK_TRY_STATUS(RestoreStart(part.processes, config, pipeline, start, part.log));
  summary.steps = start.step();
  RunRecord record{config, &run.schedule, &pipeline.model, nullptr, {}, {}};
  PENSTOCK_TRY_STATUS(BeginRun(run, start, record, notes, summary));
  StepLog log({config, run.folder, *pipeline.rate, part.processes, part.ranks, part.clock,
               run.options.trace_request},
              start, part.log);
  const std::int64_t first = start.step();
  BestLoss best(start.held_out);
  start = {};  // closes the checkpoint
  CheckpointWriter checkpoints(CheckpointOptions(run, pipeline));
  const int threads = std::max(1, part.cores / static_cast<int>(part.ranks.here().size()));
  Evaluation evaluation(run, pipeline);
  StepRunner runner({config, run.options, run.schedule, part.ranks, part.processes, threads,
                     pipeline, log, checkpoints, evaluation.loss},
                    best);
  PENSTOCK_TRY_STATUS(RunSteps(run, first, runner, log, checkpoints, summary));
  if (summary.interrupted) return summary;
  record.metrics = log.metrics();
  record.held_out = log.held_out();
  record.seconds = runner.seconds();
  PENSTOCK_TRY_STATUS(LogMemory(part.processes, config, run.schedule, pipeline, part.log));
  GatherWeights(pipeline, run.schedule);
  PENSTOCK_TRY_STATUS(Finish(run, runner, evaluation, std::move(record), summary));
  return summary;
}

// Checks that need neither the text nor the weights. Returns lines for the log.
Result<std::vector<std::string>> CheckBeforeStart(const TrainConfig& config,
                                                  const Schedule& schedule,
                                                  const ProcessPart& part) {
  PENSTOCK_TRY_STATUS(CheckModel(config.model));
  PENSTOCK_TRY(std::vector<std::string> notes, CheckRun(config));
  PENSTOCK_TRY(notes.emplace_back(),
               OnAll(part.processes, CheckMemoryNeed(config, schedule, part.ranks)));
  if (config.precision == "bf16" && NeedsBf16Kernels()) notes.emplace_back(kBf16InFp32);
  return notes;
}

// Chooses a rank per process, if the configuration leaves the number of ranks open.
void ChooseRanks(const Collectives& processes, TrainConfig& config) {
  const bool is_open = config.pipeline.ranks == 0 && config.pipeline.csv.empty();
  if (!is_open || processes.processes() == 1) return;
  config.pipeline.ranks = std::max(2, processes.processes() / config.parallel.data);
}

Result<TrainSummary> TrainOnProcess(TrainConfig config, const TrainOptions& options,
                                    Collectives& processes) {
  PENSTOCK_TRY_STATUS(CheckSameProgram(processes));
  ChooseRanks(processes, config);
  PENSTOCK_TRY(const std::vector<std::string> of_weights, OnAll(processes, FollowWeights(config)));
  PENSTOCK_TRY_STATUS(processes.All(SetDocumentEnd(config)));
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, Cores()));
  PENSTOCK_TRY_STATUS(CheckSameRun(processes, config, schedule));
  PENSTOCK_TRY(LocalRanks ranks, RanksOf(options, processes, schedule.ranks()));
  const OwnFile null_log(processes.leads() ? nullptr : std::fopen("/dev/null", "w"));
  PENSTOCK_TRY(const ClockOffset clock, processes.MeasureClock());
  const ProcessPart part{processes, std::move(ranks), clock,
                         options.cores > 0 ? options.cores : Cores(),
                         processes.leads() ? options.log : null_log.get()};
  PENSTOCK_TRY(std::vector<std::string> notes, CheckBeforeStart(config, schedule, part));
  notes.insert(notes.begin(), of_weights.begin(), of_weights.end());
  std::unique_ptr<RunFolder> folder;
  if (processes.leads()) {
    PENSTOCK_TRY(folder, RunFolder::Open(RunPath(config), part.log));
  }
  PENSTOCK_TRY(const TrainingData data, OnAll(processes, LoadTrainingData(config)));
  notes.insert(notes.end(), data.notes.begin(), data.notes.end());
  PENSTOCK_TRY(RunStart start, FindStart(processes, config, data.tokenizer, part.log));
  config.resume.clear();  // the recorded configuration must start from the first step
  return TrainFrom({config, options, schedule, part, folder.get(), data}, std::move(start), notes);
}

// Adds the process's name to exceptions, of which the other processes have none.
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

}  // namespace

Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options) {
  auto summary = Guard<TrainSummary>([&] { return TrainUnguarded(config, options); });
  if (!summary && options.group != nullptr) options.group->Abort(summary.error());
  return summary;
}

}  // namespace penstock
