#include "train/profile/profile.h"

#include <algorithm>
#include <array>
#include <memory>
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
constexpr std::int64_t kMostLayers = 4;                                     // of a measured stage
constexpr std::array<std::string_view, 2> kSchedules = {"interleaved",      // B
                                                        "interleaved-zb"};  // I and W

// The sizes of the measured pipelines.
struct ProfileShape {
  int ranks = 1;
  int chunks = 2;
  int threads = 1;        // of each rank
  std::int64_t deep = 2;  // layers of a stage of the larger pipelines

  int stages() const { return ranks * chunks; }
};

ProfileShape ShapeOfProfile(const TrainConfig& config, int cores) {
  ProfileShape shape;
  shape.ranks = std::clamp(cores, 1, config.pipeline.ranks);
  shape.chunks = shape.ranks == 1 ? 3 : 2;  // a first, a last and at least one other stage
  shape.threads = std::max(1, cores / shape.ranks);
  const std::int64_t per_rank =
      (config.model.layers + config.pipeline.ranks - 1) / config.pipeline.ranks;
  shape.deep = std::clamp<std::int64_t>(per_rank, 2, kMostLayers);
  return shape;
}

TrainConfig ConfigOf(const TrainConfig& config, const ProfileShape& shape, std::int64_t layers,
                     std::string_view schedule) {
  TrainConfig own = config;
  own.model.layers = layers * shape.stages();
  own.pipeline = {};
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

struct ByPlace {
  StageCosts first, middle, last;
};

ByPlace PlacesOf(const std::vector<StageCosts>& chain) {
  const std::span<const StageCosts> all(chain);
  return {all.front(), MeanOfStages(all.subspan(1, all.size() - 2)), all.back()};
}

using MeasuredPipelines = std::vector<std::unique_ptr<MeasuredPipeline>>;

// Returns the pipelines to measure, by layers, then by schedule.
Result<MeasuredPipelines> BuildPipelines(const TrainConfig& config, const ProfileShape& shape,
                                         std::FILE* log) {
  MeasuredPipelines pipelines;
  TrainConfig of_data = ConfigOf(config, shape, 1, kSchedules.front());
  PENSTOCK_TRY(const TrainingData data, LoadTrainingData(of_data));
  for (const std::int64_t layers : {std::int64_t{1}, shape.deep}) {
    for (const std::string_view name : kSchedules) {
      PENSTOCK_TRY(pipelines.emplace_back(),
                   MeasuredPipeline::Make(ConfigOf(config, shape, layers, name), shape.threads,
                                          data.samples));
    }
    Log(log, "built {} stages of {} layer{}\n", shape.stages(), layers, layers == 1 ? "" : "s");
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
void SetCosts(const MeasuredPipelines& pipelines, std::int64_t deep, StageProfile& profile) {
  std::vector<Costs> costs;
  for (const auto& pipeline : pipelines) costs.push_back(pipeline->MedianCosts());
  for (const Costs& each : costs) {
    profile.comm += each.comm / static_cast<double>(costs.size());
    profile.early_gradients = profile.early_gradients || each.early_gradients;
  }
  const ByPlace one = PlacesOf(WithBothForms(costs[0], costs[1]));
  const ByPlace more = PlacesOf(WithBothForms(costs[2], costs[3]));
  profile.first = FitDepth(one.first, more.first, deep);
  profile.middle = FitDepth(one.middle, more.middle, deep);
  profile.last = FitDepth(one.last, more.last, deep);
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
  SetCosts(pipelines, shape.deep, profile);
  return profile;
}

}  // namespace

Result<StageProfile> ProfileStages(const TrainConfig& config, const ProfileOptions& options) {
  return Guard<StageProfile>([&] { return Profile(config, options); });
}

}  // namespace penstock
