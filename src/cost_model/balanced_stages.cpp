#include "cost_model/balanced_stages.h"

#include <algorithm>

namespace penstock {
namespace {

double TimeOf(const StageCosts& costs) {
  return costs.forward + costs.backward_input + costs.backward_weight;
}

// The costs of a stage as a function of its number of layers, from those with one and with two.
struct LinearCosts {
  StageCosts one, two;

  double per_layer() const { return TimeOf(two) - TimeOf(one); }
  double of_ends() const { return TimeOf(one) - per_layer(); }  // embedding, head and loss

  StageCosts With(double layers) const {
    StageCosts costs = one;
    for (const StageCost& cost : kStageCosts) {
      if (cost.layers != OverLayers::kSum || cost.kind == CostKind::kFactor) continue;
      const double per_layer = two.*cost.value - one.*cost.value;
      costs.*cost.value = std::max(0.0, one.*cost.value + (layers - 1) * per_layer);
    }
    return costs;
  }
};

// The layers of each stage. A stage whose ends alone take longer than the others has none.
std::vector<double> BalancedLayers(const std::vector<LinearCosts>& stages, double layers) {
  std::vector<bool> has_layers(stages.size(), true);
  while (true) {
    double ends = layers, rate = 0;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (!has_layers[i]) continue;
      ends += stages[i].of_ends() / stages[i].per_layer();
      rate += 1 / stages[i].per_layer();
    }
    const double time = ends / rate;
    std::vector<double> counts(stages.size());
    bool all_fit = true;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (!has_layers[i]) continue;
      counts[i] = (time - stages[i].of_ends()) / stages[i].per_layer();
      if (counts[i] >= 0) continue;
      has_layers[i] = all_fit = false;
    }
    if (all_fit) return counts;
  }
}

}  // namespace

Result<ModelCosts> CostsOfBalancedStages(const std::vector<ModelOnCluster>& models,
                                         const std::vector<std::size_t>& of_stage) {
  const int stages = static_cast<int>(of_stage.size());
  std::vector<ModelCosts> one, two;
  for (ModelOnCluster model : models) {
    model.layout.clear();
    model.shape.layers = stages;
    PENSTOCK_TRY(ModelCosts with_one, CostsOfModel(model, {.stages = stages}));
    model.shape.layers = 2 * stages;
    PENSTOCK_TRY(ModelCosts with_two, CostsOfModel(model, {.stages = stages}));
    one.push_back(std::move(with_one));
    two.push_back(std::move(with_two));
  }
  std::vector<LinearCosts> linear;
  for (std::size_t i = 0; i < of_stage.size(); ++i) {
    linear.push_back({one[of_stage[i]].stages[i], two[of_stage[i]].stages[i]});
  }
  const std::vector<double> layers =
      BalancedLayers(linear, static_cast<double>(models.front().shape.layers));
  ModelCosts costs = one[of_stage.front()];
  costs.topology = {};
  for (std::size_t i = 0; i < of_stage.size(); ++i) {
    costs.stages[i] = linear[i].With(layers[i]);
    costs.states[i] = {costs.stages[i].weights, costs.stages[i].version, costs.stages[i].gradients,
                       costs.stages[i].optimizer};
    // Stages are on several nodes in general, so that the slowest of their links counts.
    costs.comm = std::max(costs.comm, one[of_stage[i]].comm);
    costs.message_bytes = std::max(costs.message_bytes, one[of_stage[i]].message_bytes);
  }
  return costs;
}

}  // namespace penstock
