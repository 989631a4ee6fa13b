#include "train/profile/profile.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "base/log.h"
#include "base/median.h"
#include "base/system/cores.h"
#include "config/profiled_run.h"
#include "config/replicas.h"
#include "config/run_schedule.h"
#include "model_spec/model_spec.h"
#include "runtime/executor/run.h"
#include "runtime/measure/trace.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "train/data/run_tokenizer.h"
#include "train/data/sample_source.h"
#include "train/data/training_data.h"
#include "train/guard.h"
#include "train/memory/memory_need.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

// A pipeline of a profile, with the medians of its runs.
class MeasuredPipeline {
 public:
  // Builds the stages. `config` has the schedule and the layers of this pipeline, and each rank has
  // `threads` threads.
  static Result<std::unique_ptr<MeasuredPipeline>> Make(
      TrainConfig config, int threads, const std::shared_ptr<const SampleSource>& samples);

  // Runs some steps; the first is not measured. Requires: steps >= 2.
  Status Run(int steps);

  // Return the medians of all runs: of the stages' costs, and of what a step takes on the first
  // stage's rank outside its actions. Require: Run has succeeded.
  Costs MedianCosts() const;
  double MedianBetweenSteps() const;
  double message_bytes() const;

 private:
  MeasuredPipeline(TrainConfig config, Schedule schedule, int threads)
      : config_(std::move(config)),
        schedule_(std::move(schedule)),
        ranks_(schedule_.ranks()),
        threads_(threads) {}

  void SetStates(Costs& costs) const;
  void SetSteps(const std::vector<double>& by_rank, Costs& costs) const;

  TrainConfig config_;
  Schedule schedule_;
  LocalRanks ranks_;
  int threads_;
  Pipeline pipeline_;
  std::int64_t done_ = 0;              // steps
  std::vector<Costs> costs_;           // by run
  std::vector<double> between_steps_;  // by run
};

double BytesOfAll(const std::vector<NamedParameter>& parameters, at::Tensor NamedParameter::*part) {
  double bytes = 0;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.*part;
    if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

Result<std::unique_ptr<MeasuredPipeline>> MeasuredPipeline::Make(
    TrainConfig config, int threads, const std::shared_ptr<const SampleSource>& samples) {
  PENSTOCK_TRY(Schedule schedule, ChooseSchedule(config, threads));
  PENSTOCK_TRY([[maybe_unused]] const std::string need,
               CheckMemoryNeed(config, schedule,
                               LocalRanks(MeshOfPlanes(config.parallel, schedule).ranks())));
  std::unique_ptr<MeasuredPipeline> made(
      new MeasuredPipeline(std::move(config), std::move(schedule), threads));
  PENSTOCK_TRY(made->pipeline_, BuildPipeline(made->config_, made->schedule_,
                                              MakeBatchSource(samples, made->config_)));
  return made;
}

Status MeasuredPipeline::Run(int steps) {
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule_, steps));
  RunOptions options;
  options.steps = steps;
  options.first_step = done_;
  options.update = UpdateRuleOf(config_.optimizer);
  options.update.zero = pipeline_.zero;
  options.on_thread_start = [this](int) { at::set_num_threads(threads_); };
  options.ranks = &ranks_;
  options.trace = &trace;
  const std::vector<Stage*> stages = pipeline_.pointers();
  PENSTOCK_TRY_STATUS(RunRanks(schedule_, stages, options));
  done_ += steps;
  const RunMeasure measure = MeasureRun(trace, 1);
  Costs costs = MeasuredCosts(trace, 1);
  std::vector<double> updates;
  for (const RankMeasure& rank : measure.ranks) updates.push_back(rank.optimizer);
  const double first = updates[Index(schedule_.placement.rank_of(0))];
  SetStates(costs);
  SetSteps(updates, costs);
  between_steps_.push_back(std::max(0.0, measure.step_time - measure.makespan - first));
  costs_.push_back(std::move(costs));
  return {};
}

// Sets the memory that no microbatch changes.
void MeasuredPipeline::SetStates(Costs& costs) const {
  for (std::size_t stage = 0; stage < pipeline_.stages.size(); ++stage) {
    const std::vector<NamedParameter>& parameters = pipeline_.stages[stage]->Parameters();
    StageCosts& of = costs.stages[stage];
    of.weights = BytesOfAll(parameters, &NamedParameter::value);
    of.version = of.weights;
    of.gradients = BytesOfAll(parameters, &NamedParameter::gradient);
    of.optimizer = static_cast<double>(pipeline_.optimizers[stage]->Bytes());
  }
}

// A rank measures its update as a whole. Its stages have shares by the size of their parameters.
void MeasuredPipeline::SetSteps(const std::vector<double>& by_rank, Costs& costs) const {
  for (int rank = 0; rank < schedule_.ranks(); ++rank) {
    double bytes = 0;
    for (const int stage : schedule_.placement.stages_of(rank)) {
      bytes += costs.stages[Index(stage)].weights;
    }
    for (const int stage : schedule_.placement.stages_of(rank)) {
      StageCosts& of = costs.stages[Index(stage)];
      of.step = bytes > 0 ? by_rank[Index(rank)] * of.weights / bytes : 0;
    }
  }
}

Costs MeasuredPipeline::MedianCosts() const {
  Costs median = costs_.front();
  for (std::size_t stage = 0; stage < median.stages.size(); ++stage) {
    for (const StageCost& cost : kStageCosts) {
      std::vector<double> values;
      for (const Costs& run : costs_) values.push_back(run.stages[stage].*cost.value);
      median.stages[stage].*cost.value = Median(std::move(values));
    }
  }
  std::vector<double> latencies;
  for (const Costs& run : costs_) latencies.push_back(run.comm);
  median.comm = Median(std::move(latencies));
  return median;
}

double MeasuredPipeline::MedianBetweenSteps() const { return Median(between_steps_); }

double MeasuredPipeline::message_bytes() const {
  double bytes = 0;
  for (const at::Tensor& output : pipeline_.stages.front()->ExampleOutputs()) {
    bytes += static_cast<double>(output.nbytes());
  }
  return bytes;
}

constexpr int kMicrobatchesPerRank = 4;
constexpr std::int64_t kMostLayers = 6;                                     // of a measured stage
constexpr std::array<std::string_view, 2> kSchedules = {"interleaved",      // B
                                                        "interleaved-zb"};  // I and W

// The sizes of the measured pipelines.
struct ProfileShape {
  int ranks = 1;
  int chunks = 2;
  int threads = 1;        // of each rank
  std::int64_t deep = 2;  // layers of the deep stages; the others have one

  int stages() const { return ranks * chunks; }
  // Whether the stage stands for all stages between the first and the last.
  bool is_between(int stage) const { return stage > 0 && stage <= ranks; }
};

ProfileShape ShapeOfProfile(const TrainConfig& config, int cores) {
  ProfileShape shape;
  shape.ranks = std::clamp(cores, 1, config.pipeline.ranks);
  shape.chunks = shape.ranks == 1 ? 3 : 2;  // a first, a last and at least one other stage
  shape.threads = std::max(1, cores / shape.ranks);
  const std::int64_t per_rank =
      (config.model.layers + config.pipeline.ranks - 1) / config.pipeline.ranks;
  shape.deep = std::clamp<std::int64_t>(per_rank - 1, 2, kMostLayers);
  return shape;
}

// Returns the layers of each stage. `deep_ends`: the first and the last stage are deep and those
// between them have one layer; otherwise the opposite. Each rank has both, so that it works on
// about as much memory as in training: layers take up to 15% longer if less of it is in the caches.
std::vector<std::int64_t> LayersOf(const ProfileShape& shape, bool deep_ends) {
  std::vector<std::int64_t> layers;
  for (int stage = 0; stage < shape.stages(); ++stage) {
    layers.push_back(shape.is_between(stage) != deep_ends ? shape.deep : 1);
  }
  return layers;
}

TrainConfig ConfigOf(const TrainConfig& config, const ProfileShape& shape, bool deep_ends,
                     std::string_view schedule) {
  TrainConfig own = config;
  own.pipeline = {};
  own.pipeline.stage_layers = LayersOf(shape, deep_ends);
  own.model.layers =
      std::reduce(own.pipeline.stage_layers.begin(), own.pipeline.stage_layers.end());
  own.pipeline.stages = shape.stages();
  own.pipeline.ranks = shape.ranks;
  own.pipeline.chunks = shape.chunks;
  own.pipeline.schedule = schedule;
  own.pipeline.microbatches = kMicrobatchesPerRank * shape.ranks;
  own.parallel = {};
  own.checkpoint = {};
  own.trace_steps.clear();
  return own;
}

StageCosts MeanOfStages(std::span<const StageCosts> stages) {
  StageCosts mean = NoCosts();
  for (const StageCost& cost : kStageCosts) {
    double sum = 0;
    for (const StageCosts& stage : stages) sum += stage.*cost.value;
    mean.*cost.value = sum / static_cast<double>(stages.size());
  }
  return mean;
}

// Returns the costs of the stages of two pipelines that differ only in the form of the backward.
std::vector<StageCosts> WithBothForms(const Costs& whole, const Costs& split) {
  std::vector<StageCosts> stages = split.stages;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    StageCosts& stage = stages[i];
    stage.forward = (stage.forward + whole.stages[i].forward) / 2;
    stage.step = (stage.step + whole.stages[i].step) / 2;
    stage.saved_by_whole_backward =
        std::max(0.0, stage.backward_input + stage.backward_weight - whole.stages[i].Backward());
  }
  return stages;
}

using MeasuredPipelines = std::vector<std::unique_ptr<MeasuredPipeline>>;

// Returns the pipelines to measure, by layers, then by schedule.
Result<MeasuredPipelines> BuildPipelines(const TrainConfig& config, const ProfileShape& shape,
                                         std::FILE* log) {
  MeasuredPipelines pipelines;
  TrainConfig of_data = ConfigOf(config, shape, false, kSchedules.front());
  PENSTOCK_TRY(const TrainingData data, LoadTrainingData(of_data));
  for (const bool deep_ends : {false, true}) {
    for (const std::string_view name : kSchedules) {
      PENSTOCK_TRY(pipelines.emplace_back(),
                   MeasuredPipeline::Make(ConfigOf(config, shape, deep_ends, name), shape.threads,
                                          data.samples));
    }
    Log(log, "built {} stages, the {} with {} layers\n", shape.stages(),
        deep_ends ? "first and last" : "others", shape.deep);
  }
  return pipelines;
}

// Runs all pipelines in turn, so that a slow minute of the machine falls on all of them.
Status RunRounds(const MeasuredPipelines& pipelines, const ProfileOptions& options) {
  for (int round = 0; round < options.rounds; ++round) {
    Log(options.log, "round {} of {}\n", round + 1, options.rounds);
    for (const auto& pipeline : pipelines) {
      PENSTOCK_TRY_STATUS(pipeline->Run(options.steps + 1));
    }
  }
  return {};
}

// Sets what the medians of the pipelines say.
void SetCosts(const MeasuredPipelines& pipelines, const ProfileShape& shape,
              StageProfile& profile) {
  std::vector<Costs> costs;
  for (const auto& pipeline : pipelines) costs.push_back(pipeline->MedianCosts());
  for (const Costs& each : costs) {
    profile.comm += each.comm / static_cast<double>(costs.size());
    profile.early_gradients = profile.early_gradients || each.early_gradients;
  }
  const std::vector<StageCosts> deep_between = WithBothForms(costs[0], costs[1]);
  const std::vector<StageCosts> deep_ends = WithBothForms(costs[2], costs[3]);
  const auto between = [&](const std::vector<StageCosts>& stages) {
    return MeanOfStages(std::span(stages).subspan(1, Index(shape.ranks)));
  };
  profile.first = FitDepth(deep_between.front(), deep_ends.front(), shape.deep);
  profile.middle = FitDepth(between(deep_ends), between(deep_between), shape.deep);
  profile.last = FitDepth(deep_between.back(), deep_ends.back(), shape.deep);
  for (const auto& pipeline : pipelines) {
    profile.first.stage.step +=
        pipeline->MedianBetweenSteps() / static_cast<double>(pipelines.size());
  }
}

Result<StageProfile> Profile(const TrainConfig& given, const ProfileOptions& options) {
  TrainConfig config = given;
  PENSTOCK_TRY_STATUS(CheckCanProfile(config));
  PENSTOCK_TRY_STATUS(SetDocumentEnd(config));
  PENSTOCK_TRY_STATUS(CheckModel(config.model));
  const int cores = options.cores > 0 ? options.cores : Cores();
  PENSTOCK_TRY([[maybe_unused]] const Schedule schedule, ChooseSchedule(config, cores));
  const ProfileShape shape = ShapeOfProfile(config, cores);
  PENSTOCK_TRY(const MeasuredPipelines pipelines, BuildPipelines(config, shape, options.log));
  PENSTOCK_TRY_STATUS(RunRounds(pipelines, options));
  StageProfile profile;
  profile.ranks = shape.ranks;
  profile.threads = shape.threads;
  profile.cores = cores;
  profile.layers = static_cast<int>(config.model.layers);
  profile.update = UpdatePassOf(config.optimizer);
  profile.message_bytes = pipelines.front()->message_bytes();
  profile.run = KeysOfProfile(given);
  SetCosts(pipelines, shape, profile);
  return profile;
}

}  // namespace

Result<StageProfile> ProfileStages(const TrainConfig& config, const ProfileOptions& options) {
  return Guard<StageProfile>([&] { return Profile(config, options); });
}

}  // namespace penstock
