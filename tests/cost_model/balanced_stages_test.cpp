// Stages of different devices.
#include "cost_model/balanced_stages.h"

#include <gtest/gtest.h>

#include "cost_model/published_models.h"

namespace penstock {
namespace {

ModelOnCluster OnDevices(int tensor) {
  ModelOnCluster model;
  model.shape = FindPublishedModel("llama-3-70b").value();
  model.cluster.device = FindDevice("h100").value();
  model.batch.tensor = tensor;
  return model;
}

double TotalTime(const StageCosts& costs) {
  return costs.forward + costs.backward_input + costs.backward_weight;
}

TEST(BalancedStages, TakeEquallyLong) {
  const std::vector<ModelOnCluster> models = {OnDevices(2), OnDevices(4)};
  const ModelCosts costs = CostsOfBalancedStages(models, {0, 1, 0}).value();
  EXPECT_NEAR(TotalTime(costs.stages[1]), TotalTime(costs.stages[0]), 1e-9);
  EXPECT_NEAR(TotalTime(costs.stages[2]), TotalTime(costs.stages[0]), 1e-9);
  // Faster stages have more layers, and so more weights on all of their devices together.
  EXPECT_GT(4 * costs.stages[1].weights, 1.5 * 2 * costs.stages[0].weights);
}

TEST(BalancedStages, HaveAllLayersTogether) {
  const ModelCosts even = CostsOfModel(OnDevices(2), {4}).value();
  const ModelCosts balanced = CostsOfBalancedStages({OnDevices(2)}, {0, 0, 0, 0}).value();
  double sum = 0, sum_of_even = 0, states = 0, states_of_even = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    sum += TotalTime(balanced.stages[i]);
    sum_of_even += TotalTime(even.stages[i]);
    states += balanced.states[i].total();
    states_of_even += even.states[i].total();
  }
  EXPECT_NEAR(sum, sum_of_even, 1e-9 * sum);
  EXPECT_NEAR(states, states_of_even, 1e-9 * states);
}

TEST(BalancedStages, AStageWithALongHeadHasNoLayers) {
  ModelOnCluster model = OnDevices(2);
  model.shape.layers = 4;
  model.shape.vocabulary *= 100;
  const ModelCosts costs = CostsOfBalancedStages({model}, {0, 0}).value();
  model.shape.layers = 40;
  EXPECT_NEAR(TotalTime(costs.stages[1]),
              TotalTime(CostsOfBalancedStages({model}, {0, 0}).value().stages[1]), 1e-9);
}

}  // namespace
}  // namespace penstock
