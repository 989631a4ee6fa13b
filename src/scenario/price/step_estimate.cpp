#include "scenario/price/step_estimate.h"

#include <algorithm>

#include "base/index.h"
#include "cost_model/layer_work.h"
#include "cost_model/parameters.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

// The FLOPs of a stage for one sample: the forward's, and twice as many in the backward, of which
// frozen weights have no gradient. Masked scores do not count.
double FlopsOfStage(const ModelOnCluster& model, const LayerRange& layers, StageBackward backward) {
  const bool is_frozen = backward != StageBackward::kWhole || model.batch.profile.lora;
  double flops = 0;
  for (const StagePart& part : PartsOfStage(model.shape, layers, model.batch)) {
    double forward = 0;
    for (const KernelCost& kernel : part.work.forward) forward += kernel.flops - kernel.skipped;
    double of_part = backward == StageBackward::kNone ? forward : 3 * forward;
    if (is_frozen && backward != StageBackward::kNone) {
      of_part -= FlopsOf(part.work.backward_weight);
    }
    flops += part.count * of_part;
  }
  return flops;
}

double FlopsOfSample(ModelOnCluster model, const Schedule& schedule) {
  Microbatch& sample = model.batch;
  sample.samples = sample.tensor = sample.context = sample.expert = 1;
  sample.expert_tensor = 0;
  LayerRange whole;
  whole.end = model.shape.layers;
  whole.embedding = whole.head = true;
  whole.predictors = static_cast<int>(model.shape.predictors);
  if (schedule.backward.empty()) return FlopsOfStage(model, whole, StageBackward::kWhole);
  const auto stages = LayersOfStages(model, static_cast<int>(schedule.backward.size()));
  // Fewer layers than stages have prices only if they are divided in fractions.
  if (!stages) return FlopsOfStage(model, whole, StageBackward::kWhole);
  double flops = 0;
  for (std::size_t i = 0; i < stages->size(); ++i) {
    flops += FlopsOfStage(model, (*stages)[i], schedule.backward[i]);
  }
  return flops;
}

struct UpdateTimes {
  double reduce = 0, update = 0, gather = 0;
  double total() const { return reduce + update + gather; }
};

// What a rank does after its last backward, unless a pass has put it into the schedule.
UpdateTimes UpdateOf(const PricedSchedule& chosen, int rank) {
  const ModelOnCluster& model = *chosen.model;
  UpdateTimes times;
  for (const int stage : chosen.schedule.placement.stages_of(rank)) {
    const StageCosts& costs = chosen.costs.stages[Index(stage)];
    if (!chosen.has_steps) times.update += costs.step;
    if (chosen.has_collectives) continue;
    // Replicas that share nothing add their gradients in an all-reduce, which is a reduce-scatter
    // and an all-gather of the sums.
    times.reduce += model.zero == 0 ? 2 * costs.reduce : costs.reduce;
    if (model.zero > 0) times.gather += costs.unshard;
  }
  return times;
}

// All devices write equal parts of masters and optimizer state.
FailureTimes FailureTimesOf(const ModelOnCluster& model, int devices) {
  const Failures& failures = model.cluster.failures;
  const StateFormat format = StateFormatOf(model.batch);
  const double bytes = ModelParameters(model.shape) * (format.updated() + format.optimizer);
  return {.between = failures.device / devices,
          .restart = failures.restart,
          .checkpoint = bytes / (failures.storage_bandwidth * devices)};
}

}  // namespace

double StepEstimate::peak_bytes() const {
  double peak = 0;
  for (const PeakBytes& rank : ranks) peak = std::max(peak, rank.allocated());
  return peak;
}

double StepEstimate::device_bytes() const {
  double peak = 0;
  for (const PeakBytes& rank : ranks) peak = std::max(peak, rank.total());
  return peak;
}

StepEstimate EstimateOf(const PricedSchedule& chosen, const SimulationResult& result) {
  const ModelOnCluster& model = *chosen.model;
  const Schedule& schedule = chosen.schedule;
  StepEstimate estimate;
  UpdateTimes longest;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const UpdateTimes times = UpdateOf(chosen, rank);
    if (times.total() > longest.total()) longest = times;
    estimate.ranks.push_back(PeakOfRank(chosen, result, rank));
  }
  estimate.makespan = result.makespan;
  estimate.reduce = longest.reduce;
  estimate.update = longest.update;
  estimate.gather = longest.gather;
  estimate.step_time = estimate.makespan + longest.total();
  const double samples = static_cast<double>(schedule.microbatches) * schedule.steps *
                         static_cast<double>(model.batch.samples) * model.data;
  estimate.tokens = samples * static_cast<double>(model.batch.sequence);
  estimate.flops = samples * FlopsOfSample(model, schedule);
  estimate.devices = chosen.devices + chosen.idle_devices;
  estimate.idle_devices = chosen.idle_devices;
  if (model.cluster.failures.device > 0) {
    estimate.checkpoints =
        BestCheckpointInterval(FailureTimesOf(model, chosen.devices), estimate.step_time);
  }
  return estimate;
}

}  // namespace penstock
