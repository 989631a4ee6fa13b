#include "scenario/price/peak_bytes.h"

#include <algorithm>
#include <limits>

#include "base/index.h"
#include "cost_model/parameters.h"
#include "simulate/memory/working_peak.h"

namespace penstock {
namespace {

// What replicas gather at a time, if they divide weights: the largest layer, or the embedding or
// head of a stage that has one. FSDP2 gathers the next layer meanwhile, and keeps embedding and
// head, and from the head's backward on its gradient.
double GatheredBytes(const ModelOnCluster& model, bool is_first, bool is_last) {
  const ModelShape& shape = model.shape;
  const Implementation& implementation = model.batch.profile.get();
  const double element = model.batch.element_bytes();
  const auto tensor = static_cast<double>(model.batch.tensor);
  double layer = 0;
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    layer = std::max(layer, LayerParameters(shape, i) - ExpertParameters(shape, i));
  }
  const auto vocabulary = static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim);
  if (!implementation.is_fsdp) {
    return std::max(layer, is_first || is_last ? vocabulary : 0) / tensor * element;
  }
  const bool is_small = IsQuantized(model.batch.precision);
  const double gathered = is_small ? implementation.quantized_gather_bytes : element;
  const double kept = (is_first ? 1 : 0) + (is_last ? 2 : 0);
  return (2 * layer * gathered + kept * vocabulary * element) / tensor;
}

}  // namespace

PeakBytes HeldAlways(const PricedSchedule& chosen, int rank) {
  const ModelOnCluster& model = *chosen.model;
  const Implementation& implementation = model.batch.profile.get();
  const Placement& placement = chosen.schedule.placement;
  const std::vector<int> stages = placement.stages_of(rank);
  PeakBytes bytes;
  // Exchanges of experts run under another microbatch's compute, so one more microbatch is in
  // flight (Megatron-LM's core/pipeline_parallel/schedules.py: get_pp_rank_microbatches). The stage
  // of the loss is the largest, and its microbatch has no successor.
  if (model.batch.profile.overlapped_experts && stages.size() > 1) {
    bytes.activations = std::numeric_limits<double>::max();
    for (const int stage : stages) {
      bytes.activations = std::min(bytes.activations, chosen.costs.stages[Index(stage)].activation);
    }
  }
  if (implementation.overhead == nullptr) return bytes;
  const int ranks = chosen.schedule.ranks() / std::max(1, placement.replicas());
  const RankOverhead overhead = implementation.overhead(
      model.shape, model.batch, {rank % ranks, ranks, static_cast<int>(stages.size())});
  bytes.workspace = overhead.workspace;
  bytes.messages = overhead.messages;
  bytes.others = overhead.others;
  bytes.context = overhead.context;
  if (model.zero == 3 && !chosen.has_collectives) {
    const auto any = [&](auto&& is) { return std::ranges::any_of(stages, is); };
    bytes.gathered =
        GatheredBytes(model, any([&](int stage) { return placement.previous(stage) < 0; }),
                      any([&](int stage) { return placement.next(stage) < 0; }));
  }
  return bytes;
}

PeakBytes PeakOfRank(const PricedSchedule& chosen, const SimulationResult& result, int rank) {
  PeakBytes bytes = HeldAlways(chosen, rank);
  WorkingPeak peak{.activations = result.ranks[Index(rank)].peak_memory};
  bool has_workspace = false;
  for (const int stage : chosen.schedule.placement.stages_of(rank)) {
    const StageCosts& costs = chosen.costs.stages[Index(stage)];
    bytes.weights += costs.weights;
    bytes.gradients += costs.gradients;
    bytes.optimizer += costs.optimizer;
    has_workspace = has_workspace || costs.workspace > 0;
  }
  if (has_workspace) peak = WorkingPeakOf(chosen.schedule, chosen.costs, rank);
  bytes.workspace += peak.workspace;
  bytes.activations += peak.activations;
  bytes.fragmentation = chosen.model->batch.profile.fragmentation * bytes.allocated();
  return bytes;
}

}  // namespace penstock
