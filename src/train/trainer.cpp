// Train(): the main job, from a configuration to the files of a run.

#include <memory>

#include "base/units.h"
#include "train/bigram.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_writer.h"
#include "train/data.h"
#include "train/guard.h"
#include "train/pipeline.h"
#include "train/results.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/step_log.h"
#include "train/step_runner.h"
#include "train/train.h"

namespace penstock {
namespace {

void PrintStart(const TrainConfig& config, const Corpus& corpus, const Pipeline& pipeline,
                std::FILE* log) {
  std::int64_t parameters = 0;
  for (const auto& [name, value] : pipeline.model.Parameters()) parameters += value.numel();
  fmt::print(log, "{}\n", ToYaml(config));
  fmt::print(log, "text: {} documents of {} files, {} to train on, {} held out\n", corpus.documents,
             corpus.files, FormatBytes(static_cast<std::int64_t>(corpus.train.size())),
             FormatBytes(static_cast<std::int64_t>(corpus.held_out.size())));
  fmt::print(log, "model: {:.2f} million parameters, {} layers in {} stages on {} ranks ({})\n",
             static_cast<double>(parameters) * 1e-6, config.model.layers, config.pipeline.stages,
             config.pipeline.ranks,
             config.pipeline.csv.empty() ? config.pipeline.schedule : config.pipeline.csv);
  std::fflush(log);
}

// What is left to do behind the last step: losses, a passage, the comparison and the files.
Result<TrainSummary> Finish(const StepRunner& runner, RunRecord record, const Corpus& corpus) {
  const TrainConfig& config = record.config;
  TrainSummary summary;
  summary.steps = runner.steps();
  const std::int64_t tokens_a_step =
      config.batch * record.schedule->microbatches * config.model.sequence;
  summary.tokens_per_second = runner.steps_a_second() * static_cast<double>(tokens_a_step);
  summary.held_out_loss = EvaluateText(*record.model, corpus.held_out, Cores());
  summary.baseline_loss =
      Bigram(corpus.train).MeanNats(EvaluatedPart(corpus.held_out, config.model.sequence));
  WriteOptions write;
  write.bytes = config.sample;
  write.seed = config.seed;
  summary.passage = WriteText(*record.model, write);
  Comparison comparison;
  if (runner.trace() != nullptr) {
    PENSTOCK_TRY(comparison, Compare(*runner.trace()));
    Summarize(comparison, runner.first_traced(), summary);
    record.schedule = &runner.trace()->schedule();
    record.comparison = &comparison;
  }
  record.seconds = runner.seconds();
  PENSTOCK_TRY_STATUS(WriteRunFiles(record, summary));
  return summary;
}

std::unique_ptr<CheckpointWriter> MakeCheckpointWriter(const TrainConfig& config,
                                                       const Schedule& schedule,
                                                       const Pipeline& pipeline) {
  if (config.checkpoint.every == 0) return nullptr;
  CheckpointWriterOptions options;
  options.folder = CheckpointFolder(RunPath(config));
  options.config = config;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    options.ranks.emplace_back(
        [&pipeline, &schedule, rank] { return RankState(pipeline, schedule, rank); });
  }
  return std::make_unique<CheckpointWriter>(std::move(options));
}

Result<TrainSummary> TrainUnguarded(TrainConfig config, const TrainOptions& options) {
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, Cores()));
  PENSTOCK_TRY_STATUS(CheckModel(config.model));
  PENSTOCK_TRY(const auto folder, RunFolder::Open(RunPath(config), options.log));
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(config.data.path, config.data.held_out));
  PENSTOCK_TRY_STATUS(CheckLength(corpus, config.model.sequence));
  PENSTOCK_TRY(RunStart start, FindStart(config, options.log));
  config.resume.clear();  // what is recorded runs from the start again
  const Sampler sampler(corpus.train, config.model.sequence, config.seed);
  PENSTOCK_TRY(Pipeline pipeline, BuildPipeline(config, schedule, MakeBatchSource(sampler, config),
                                                start.checkpoint ? &*start.checkpoint : nullptr));
  PENSTOCK_TRY_STATUS(SetAsideSuperseded(config, start, options.log));
  PrintStart(config, corpus, pipeline, options.log);
  StepLog log(config, start, *pipeline.rate, options.log);
  const std::int64_t first = start.step();
  start = {};  // its tensors' memory
  const auto checkpoints = MakeCheckpointWriter(config, schedule, pipeline);
  StepRunner runner({config, options, schedule, pipeline, log, checkpoints.get()});
  PENSTOCK_TRY_STATUS(runner.Run(first));
  if (checkpoints != nullptr && checkpoints->left_out() > 0) {
    fmt::print(options.log, "{} checkpoints were left out: the one before was not all there\n",
               checkpoints->left_out());
  }
  if (runner.updates().steps > 0) {
    fmt::print(options.log, "gradients: {} of {} steps clipped, {} left out\n",
               runner.updates().clipped, runner.updates().steps, runner.updates().skipped);
  }
  PENSTOCK_TRY_STATUS(log.OpenFile());
  PENSTOCK_TRY(
      TrainSummary summary,
      Finish(runner, {config, &schedule, &pipeline.model, nullptr, log.metrics()}, corpus));
  summary.files.insert(summary.files.end(), log.traces().begin(), log.traces().end());
  return summary;
}

}  // namespace

Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options) {
  return Guard<TrainSummary>([&] { return TrainUnguarded(config, options); });
}

}  // namespace penstock
