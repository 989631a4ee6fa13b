#include "schedule/cost_files/layer_costs.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr double StageCosts::*kFields[] = {
    &StageCosts::forward,    &StageCosts::backward_input,     &StageCosts::backward_weight,
    &StageCosts::activation, &StageCosts::activation_after_i, &StageCosts::saved_by_whole_backward,
    &StageCosts::recompute};

// What slices of a microbatch share.
constexpr double StageCosts::*kStates[] = {
    &StageCosts::weights,  &StageCosts::version, &StageCosts::gradients, &StageCosts::optimizer,
    &StageCosts::gathered, &StageCosts::step,    &StageCosts::unshard,   &StageCosts::reduce};

}  // namespace

std::int64_t CountLayers(const std::vector<LayerGroup>& groups) {
  std::int64_t layers = 0;
  for (const LayerGroup& group : groups) layers += group.layers;
  return layers;
}

Result<std::vector<StageCosts>> StagesOfLayers(const std::vector<LayerGroup>& groups, int stages,
                                               int replicas, int slices) {
  const std::int64_t layers = CountLayers(groups);
  if (layers < stages) {
    return InvalidArgument(
        "{} layers cannot fill {} stages; give more layers, or fewer ranks or "
        "chunks",
        layers, stages);
  }
  std::vector<StageCosts> costs(stages, StageCosts{0, 0, 0, 0, 0, 0});
  auto group = groups.begin();
  std::int64_t left_of_group = group->layers;
  for (int stage = 0; stage < stages; ++stage) {
    StageCosts& of = costs[stage];
    of.input_activation = group->costs.input_activation / slices;  // of the stage's first layer
    std::int64_t left_of_stage = layers / stages + (stage < layers % stages ? 1 : 0);
    while (left_of_stage > 0) {
      const std::int64_t taken = std::min(left_of_stage, left_of_group);
      for (double StageCosts::*field : kFields) {
        of.*field += static_cast<double>(taken) * group->costs.*field / slices;
      }
      for (double StageCosts::*state : kStates) {
        of.*state += static_cast<double>(taken) * group->costs.*state;
      }
      of.workspace = std::max(of.workspace, group->costs.workspace / slices);
      of.message_scale = group->costs.message_scale;  // of the stage's last layer
      left_of_stage -= taken;
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
