// Train(): the main job, from a configuration to the files of a run.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/units.h"
#include "runtime/run.h"
#include "train/bigram.h"
#include "train/data.h"
#include "train/guard.h"
#include "train/pipeline.h"
#include "train/progress.h"
#include "train/results.h"
#include "train/setup.h"
#include "train/train.h"

namespace penstock {
namespace {

constexpr int kFirstBlock = 6;            // steps that a time limit's first estimate is made from
constexpr std::int64_t kBlocks = 8;       // of the steps left: how often the estimate is renewed
constexpr std::int64_t kTracedSteps = 3;  // least steps of a block that replaces the kept trace

// The run's folder: gone again where nothing was written to it.
class RunFolder {
 public:
  explicit RunFolder(const TrainConfig& config)
      : path_(fmt::format("{}/{}", config.folder, config.name)) {}
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder() {
    std::error_code error;  // of a folder that is not empty
    std::filesystem::remove(path_, error);
  }

  Status Prepare() const { return PrepareFolder(path_); }

 private:
  std::string path_;
};

// The training steps of one run, in one block or, with a time limit, in several.
class StepRunner {
 public:
  StepRunner(const TrainConfig& config, const TrainOptions& options, const Schedule& schedule,
             Pipeline& pipeline)
      : config_(config),
        options_(options),
        schedule_(schedule),
        pipeline_(pipeline),
        last_rank_(schedule.placement.rank_of(schedule.stages() - 1)),
        total_(config.steps),
        progress_(options.log, static_cast<std::int64_t>(config.batch) * schedule.microbatches *
                                   config.model.sequence) {
    metrics_.reserve(static_cast<std::size_t>(std::min<std::int64_t>(total_, 1 << 20)));
  }

  Status Run() {
    std::int64_t done = 0;
    while (done < total_) {
      const std::int64_t block = BlockSize(done);
      if (const Status status = RunBlock(done, block); !status) {
        progress_.Finish();
        return status;
      }
      done += block;
      if (config_.seconds > 0) Estimate(done);
    }
    seconds_ = progress_.elapsed();
    progress_.Finish();
    return {};
  }

  double seconds() const { return seconds_; }
  std::int64_t steps() const { return total_; }
  const Trace& trace() const { return *trace_; }
  std::vector<StepMetric>& metrics() { return metrics_; }

 private:
  std::int64_t BlockSize(std::int64_t done) const {
    const std::int64_t left = total_ - done;
    if (config_.seconds <= 0) return left;
    if (done == 0) return std::min<std::int64_t>(left, kFirstBlock);
    return std::min(left, std::max<std::int64_t>(kTracedSteps, left / kBlocks));
  }

  // How many steps the time limit allows, from those so far; the learning rate follows.
  void Estimate(std::int64_t done) {
    const double elapsed = progress_.elapsed();
    const double more = (config_.seconds - elapsed) / elapsed * static_cast<double>(done);
    const double most = static_cast<double>(config_.steps - done);
    total_ = done + static_cast<std::int64_t>(std::clamp(more, 0.0, most));
    pipeline_.rate->steps = total_;
  }

  Status RunBlock(std::int64_t first, std::int64_t steps) {
    PENSTOCK_TRY(Trace trace, Trace::Make(schedule_));
    auto block_trace = std::make_unique<Trace>(std::move(trace));
    RunOptions run;
    run.steps = steps;
    run.first_step = first;
    run.watchdog = std::chrono::milliseconds(static_cast<std::int64_t>(config_.watchdog * 1e3));
    run.cancel = options_.cancel;
    run.on_stuck = options_.on_stuck;
    const int threads = std::max(1, Cores() / schedule_.ranks());
    run.on_thread_start = [threads](int) { at::set_num_threads(threads); };
    run.on_step = [this](int rank, std::int64_t step) {
      if (rank == last_rank_) AfterStep(step);
    };
    run.trace = block_trace.get();
    const std::vector<Stage*> stages = pipeline_.pointers();
    PENSTOCK_TRY_STATUS(RunRanks(schedule_, stages, run));
    if (trace_ == nullptr || steps >= kTracedSteps) trace_ = std::move(block_trace);
    return {};
  }

  // On the last stage's rank.
  void AfterStep(std::int64_t step) {
    const double loss = pipeline_.last().StepLoss();
    if (!std::isfinite(loss)) {
      throw std::runtime_error(
          fmt::format("the loss of step {} is {}: give a smaller optimizer.lr", step, loss));
    }
    metrics_.push_back({step, loss, pipeline_.rate->At(step), progress_.elapsed()});
    progress_.Report(step + 1, total_, loss);
  }

  const TrainConfig& config_;
  const TrainOptions& options_;
  const Schedule& schedule_;
  Pipeline& pipeline_;
  int last_rank_;
  std::int64_t total_;  // steps, as far as is known
  Progress progress_;
  double seconds_ = 0;
  std::unique_ptr<Trace> trace_;
  std::vector<StepMetric> metrics_;
};

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
Result<TrainSummary> Finish(StepRunner& runner, RunRecord record, const Corpus& corpus) {
  const TrainConfig& config = record.config;
  TrainSummary summary;
  summary.steps = runner.steps();
  const std::int64_t tokens_a_step =
      config.batch * record.schedule->microbatches * config.model.sequence;
  summary.tokens_per_second = static_cast<double>(summary.steps * tokens_a_step) / runner.seconds();
  summary.held_out_loss = EvaluateText(*record.model, corpus.held_out, Cores());
  summary.baseline_loss =
      Bigram(corpus.train).MeanNats(EvaluatedPart(corpus.held_out, config.model.sequence));
  WriteOptions write;
  write.bytes = config.sample;
  write.seed = config.seed;
  summary.passage = WriteText(*record.model, write);
  PENSTOCK_TRY(const Comparison comparison, Compare(runner.trace()));
  Summarize(comparison, summary);
  record.comparison = &comparison;
  record.metrics = std::move(runner.metrics());
  PENSTOCK_TRY_STATUS(WriteRunFiles(record, summary));
  return summary;
}

Result<TrainSummary> TrainUnguarded(TrainConfig config, const TrainOptions& options) {
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, Cores()));
  PENSTOCK_TRY_STATUS(CheckModel(config.model));
  PENSTOCK_TRY(const Corpus corpus, LoadCorpus(config.data.path, config.data.held_out));
  PENSTOCK_TRY_STATUS(CheckLength(corpus, config.model.sequence));
  const RunFolder folder(config);
  PENSTOCK_TRY_STATUS(folder.Prepare());
  const Sampler sampler(corpus.train, config.model.sequence, config.seed);
  PENSTOCK_TRY(Pipeline pipeline,
               BuildPipeline(config, schedule, MakeBatchSource(sampler, config)));
  PrintStart(config, corpus, pipeline, options.log);
  StepRunner runner(config, options, schedule, pipeline);
  PENSTOCK_TRY_STATUS(runner.Run());
  return Finish(runner, {config, &schedule, &pipeline.model, nullptr, {}}, corpus);
}

}  // namespace

Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options) {
  return Guard<TrainSummary>([&] { return TrainUnguarded(config, options); });
}

}  // namespace penstock
