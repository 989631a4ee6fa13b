#include "train/profile/profile.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include "base/index.h"
#include "base/log.h"
#include "base/system/cores.h"
#include "config/profiled_run.h"
#include "config/run_schedule.h"
#include "model_spec/model_spec.h"
#include "train/data/run_tokenizer.h"
#include "train/data/training_data.h"
#include "train/guard.h"
#include "train/profile/measured_pipeline.h"

namespace penstock {
namespace {

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
