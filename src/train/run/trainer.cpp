// Train(): the main job, from a configuration to the files of a run.

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/log.h"
#include "base/units.h"
#include "graph/ops/bf16_kernels.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/data/bigram.h"
#include "train/data/data.h"
#include "train/guard.h"
#include "train/run/memory_need.h"
#include "train/run/pipeline.h"
#include "train/run/results.h"
#include "train/run/resume.h"
#include "train/run/run_checks.h"
#include "train/run/run_folder.h"
#include "train/run/step_log.h"
#include "train/run/step_runner.h"
#include "train/setup.h"
#include "train/train.h"

namespace penstock {
namespace {

constexpr const char* kBf16InFp32 =
    "bf16: this processor has no instructions for it; matmuls and attention are computed in fp32 "
    "and "
    "rounded to bf16";

void PrintStart(const TrainConfig& config, const Corpus& corpus, const Pipeline& pipeline,
                std::FILE* log) {
  std::int64_t parameters = 0;
  for (const auto& [name, value] : pipeline.model.Parameters()) parameters += value.numel();
  Log(log, "{}\n", ToYaml(config));
  Log(log, "text: {} documents of {} files, {} to train on, {} held out\n", corpus.documents,
      corpus.files, FormatBytes(static_cast<std::int64_t>(corpus.train.size())),
      FormatBytes(static_cast<std::int64_t>(corpus.held_out.size())));
  Log(log, "model: {:.2f} million parameters, {} layers in {} stages on {} ranks ({})\n",
      static_cast<double>(parameters) * 1e-6, config.model.layers, config.pipeline.stages,
      config.pipeline.ranks,
      config.pipeline.csv.empty() ? config.pipeline.schedule : config.pipeline.csv);
  std::fflush(log);
}

bool StopRequested(const TrainOptions& options) {
  return options.stop != nullptr && options.stop->load();
}

void PrintUpdates(const std::vector<StepMetric>& metrics, std::FILE* log) {
  const auto count = [&](bool StepMetric::*is) { return std::ranges::count(metrics, true, is); };
  Log(log, "gradients: {} of {} steps clipped, {} skipped\n", count(&StepMetric::clipped),
      metrics.size(), count(&StepMetric::skipped));
}

// What is left to do after the last step: first the weights, then what a stop may cut off.
Status Finish(const StepRunner& runner, RunRecord record, const Corpus& corpus,
              const TrainOptions& options, TrainSummary& summary) {
  const TrainConfig& config = record.config;
  const std::int64_t tokens_a_step =
      config.batch * record.schedule->microbatches * config.model.sequence;
  summary.tokens_per_second = runner.steps_a_second() * static_cast<double>(tokens_a_step);
  PENSTOCK_TRY_STATUS(WriteWeights(record, summary));
  summary.saved = summary.files.back();
  PENSTOCK_TRY_STATUS(CheckSkipped(record.metrics));
  summary.held_out_loss = EvaluateText(*record.model, corpus.held_out, Cores(), options.stop);
  summary.interrupted = StopRequested(options);
  if (summary.interrupted) return {};
  if (!std::isfinite(summary.held_out_loss)) {
    return MakeError(ErrorCode::kUnavailable,
                     "the held-out loss is {}: the weights in {} are of no use, give a smaller "
                     "optimizer.lr",
                     summary.held_out_loss, summary.saved);
  }
  summary.baseline_loss =
      Bigram(corpus.train).MeanNats(EvaluatedPart(corpus.held_out, config.model.sequence));
  WriteOptions write;
  write.bytes = config.sample;
  write.seed = config.seed;
  write.stop = options.stop;
  summary.passage = WriteText(*record.model, write);
  summary.interrupted = StopRequested(options);
  if (summary.interrupted) return {};
  Comparison comparison;
  if (runner.trace() != nullptr) {
    PENSTOCK_TRY(comparison, Compare(*runner.trace()));
    Summarize(comparison, runner.first_traced(), summary);
    record.schedule = &runner.trace()->schedule();
    record.comparison = &comparison;
  }
  return WriteReports(record, summary);
}

CheckpointWriterOptions CheckpointOptions(const TrainConfig& config, const RunFolder& folder,
                                          const Schedule& schedule, const Pipeline& pipeline) {
  CheckpointWriterOptions options;
  options.folder = CheckpointFolder(RunPath(config));
  options.check = [&folder] { return folder.Check(); };
  options.config = config;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    options.ranks.emplace_back(
        [&pipeline, &schedule, rank] { return RankState(pipeline, schedule, rank); });
  }
  return options;
}

Result<TrainSummary> TrainUnguarded(TrainConfig config, const TrainOptions& options) {
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, Cores()));
  PENSTOCK_TRY_STATUS(CheckModel(config.model));
  PENSTOCK_TRY(std::vector<std::string> notes, CheckRun(config));
  PENSTOCK_TRY(notes.emplace_back(), CheckMemory(config, schedule));
  if (config.precision == "bf16" && NeedsBf16Kernels()) notes.emplace_back(kBf16InFp32);
  PENSTOCK_TRY(const auto folder, RunFolder::Open(RunPath(config), options.log));
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(config.data.path, config.data.held_out));
  PENSTOCK_TRY_STATUS(CheckLength(corpus, config.model.sequence));
  PENSTOCK_TRY(RunStart start, FindStart(config, options.log));
  config.resume.clear();  // what is recorded runs from the start again
  const Sampler sampler(corpus.train, config.model.sequence, config.seed);
  auto built =
      BuildPipeline(config, schedule, MakeBatchSource(sampler, config),
                    start.checkpoint ? &*start.checkpoint : nullptr, options.stop, options.log);
  TrainSummary summary;
  summary.steps = start.step();
  summary.planned_steps = config.steps;
  // Before the result is looked at: a pipeline that was interrupted lacks stages.
  summary.interrupted = StopRequested(options);
  if (summary.interrupted) return summary;
  PENSTOCK_TRY(Pipeline pipeline, std::move(built));
  PENSTOCK_TRY_STATUS(SetAsideSuperseded(config, start, options.log));
  RunRecord record{config, &schedule, &pipeline.model, nullptr, {}};
  PENSTOCK_TRY_STATUS(WriteStartFiles(record, summary));
  PrintStart(config, corpus, pipeline, options.log);
  for (const std::string& note : notes) Log(options.log, "{}\n", note);
  StepLog log(config, *folder, start, *pipeline.rate, options.log);
  const std::int64_t first = start.step();
  start = {};  // its tensors' memory
  CheckpointWriter checkpoints(CheckpointOptions(config, *folder, schedule, pipeline));
  StepRunner runner({config, options, schedule, pipeline, log, checkpoints});
  PENSTOCK_TRY_STATUS(runner.Run(first));
  if (checkpoints.left_out() > 0) {
    Log(options.log, "{} checkpoints were left out: the one before was not all there\n",
        checkpoints.left_out());
  }
  if (UpdateRuleOf(config.optimizer).needs_norm()) PrintUpdates(log.metrics(), options.log);
  PENSTOCK_TRY_STATUS(folder->Check());
  PENSTOCK_TRY_STATUS(FailedRun(log.OpenFile()));
  summary.files.push_back(RunPath(config) + "/metrics.jsonl");
  summary.files.insert(summary.files.end(), log.traces().begin(), log.traces().end());
  summary.steps = runner.steps();
  summary.interrupted = runner.ended_early();
  if (summary.interrupted) {
    if (summary.steps > first) {
      summary.saved = CheckpointPath(CheckpointFolder(RunPath(config)), summary.steps);
    }
    return summary;
  }
  summary.planned_steps = summary.steps;
  record.metrics = log.metrics();
  record.seconds = runner.seconds();
  PENSTOCK_TRY_STATUS(Finish(runner, std::move(record), corpus, options, summary));
  return summary;
}

}  // namespace

Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options) {
  return Guard<TrainSummary>([&] { return TrainUnguarded(config, options); });
}

}  // namespace penstock
