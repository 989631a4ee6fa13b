#include "schedule/cost_files/layer_costs.h"

#include <algorithm>

#include "base/divide_layers.h"

namespace penstock {
namespace {

// Adds `layers` equal layers to a stage, which may have layers already.
void AddLayers(StageCosts& stage, const StageCosts& layer, double layers, int slices, bool first) {
  for (const StageCost& cost : kStageCosts) {
    const bool shared = cost.of == CostOf::kStage || cost.kind == CostKind::kFactor;
    const double share = shared ? 1 : slices;
    const double value = layer.*cost.value / share;
    double& of_stage = stage.*cost.value;
    switch (cost.layers) {
      case OverLayers::kSum:
        of_stage += layers * layer.*cost.value / share;
        break;
      case OverLayers::kMost:
        of_stage = std::max(of_stage, value);
        break;
      case OverLayers::kFirst:
        if (first) of_stage = value;
        break;
      case OverLayers::kLast:
        of_stage = value;
        break;
    }
  }
}

StageCosts NoLayers() {
  StageCosts none;
  for (const StageCost& cost : kStageCosts) none.*cost.value = 0;
  return none;
}

}  // namespace

std::int64_t CountLayers(const std::vector<LayerGroup>& groups) {
  std::int64_t layers = 0;
  for (const LayerGroup& group : groups) layers += group.layers;
  return layers;
}

Result<std::vector<StageCosts>> StagesOfLayers(const std::vector<LayerGroup>& groups, int stages,
                                               int replicas, int slices) {
  PENSTOCK_TRY(const std::vector<std::int64_t> lengths, DivideLayers(CountLayers(groups), stages));
  std::vector<StageCosts> costs(stages, NoLayers());
  auto group = groups.begin();
  std::int64_t left_of_group = group->layers;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t all = lengths[stage];
    for (std::int64_t left = all; left > 0;) {
      const std::int64_t taken = std::min(left, left_of_group);
      AddLayers(costs[stage], group->costs, static_cast<double>(taken), slices, left == all);
      left -= taken;
      left_of_group -= taken;
      if (left_of_group == 0 && ++group != groups.end()) left_of_group = group->layers;
    }
  }
  const std::vector<StageCosts> chain = costs;
  for (int replica = 1; replica < replicas; ++replica) {
    costs.insert(costs.end(), chain.begin(), chain.end());
  }
  return costs;
}

}  // namespace penstock
