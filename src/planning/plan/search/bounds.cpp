#include "plan/search/bounds.h"

#include <algorithm>

#include "base/index.h"
#include "cost_model/model_costs.h"
#include "scenario/machine/machine_file.h"
#include "schedule/text/cost_text.h"

namespace penstock {
namespace {

Result<ModelOnCluster> Load(const Scenario& scenario, const JobDivision& division) {
  Scenario own = scenario;
  SetDivision(division, own);
  PENSTOCK_TRY_STATUS(FillFromMachine(own));
  PENSTOCK_TRY(ModelOnCluster model, own.Load());
  model.layout.clear();
  return model;
}

// All layers as one stage.
Result<StageCosts> CostsOfWhole(const ModelOnCluster& model) {
  const PipelineDivision whole{.has_pipeline = PipelineRanks(model) > 1};
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, whole));
  return costs.stages.front();
}

double WorkOf(const StageCosts& costs) { return costs.forward + costs.Backward(); }

double ExchangeOf(const StageCosts& costs, int zero) {
  return zero == 0 ? 2 * costs.reduce : costs.reduce + costs.unshard;
}

double LeastWork(const StageCosts& costs, const OverlapRule& pairs) {
  return std::min(WorkOf(costs), pairs.Price(costs.forward, costs.Backward()));
}

int RanksOf(const ModelOnCluster& model, const NodeGroup& group) {
  return group.nodes * model.cluster.devices_per_node / static_cast<int>(model.ranks_per_stage());
}

// Returns how many microbatches all ranks together compute per second at most. `costs` belong to
// the first devices.
Result<double> RateOf(const Scenario& scenario, const ModelOnCluster& model, int ranks,
                      const StageCosts& costs) {
  OverlapRule pairs{.kind = OverlapRule::Kind::kSum};
  if (scenario.overlap) {
    PENSTOCK_TRY(pairs, ParseOverlap(*scenario.overlap));
  }
  if (model.cluster.groups.empty()) return ranks / LeastWork(costs, pairs);
  double rate = 0;
  for (std::size_t group = 0; group < model.cluster.groups.size(); ++group) {
    PENSTOCK_TRY(const StageCosts own, CostsOfWhole(model.OnGroup(group)));
    rate += RanksOf(model, model.cluster.groups[group]) / LeastWork(own, pairs);
  }
  return rate;
}

bool IsBlock(const ModelOnCluster& model) {
  return model.recompute.method == Recompute::Method::kBlock;
}

}  // namespace

Result<DivisionBounds> BoundsOf(const Scenario& scenario, const JobDivision& division) {
  PENSTOCK_TRY(ModelOnCluster model, Load(scenario, division));
  // `block` recomputes some layers of a stage: bounds its time by recomputing none, its memory by
  // all.
  const bool is_block = IsBlock(model);
  if (is_block) model.recompute = {};
  PENSTOCK_TRY(const StageCosts costs, CostsOfWhole(model));
  PENSTOCK_TRY(const double rate, RateOf(scenario, model, division.pipeline, costs));
  double held = costs.activation;
  if (is_block) {
    model.recompute = {.method = Recompute::Method::kUniform};
    PENSTOCK_TRY(const StageCosts least, CostsOfWhole(model));
    held = least.activation;
  }
  // On unlike devices, only compute has a bound.
  const double update =
      model.cluster.groups.empty() ? costs.step + ExchangeOf(costs, division.zero) : 0;
  return DivisionBounds{
      division.microbatches / rate + update / division.pipeline,
      (costs.weights + costs.gradients + costs.optimizer + held) / division.pipeline};
}

Result<WorkTimes> WorkTimesOf(const Scenario& scenario, const JobDivision& division) {
  PENSTOCK_TRY(const ModelOnCluster model, Load(scenario, division));
  const int layers = static_cast<int>(model.shape.layers);
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, {.stages = layers}));
  WorkTimes times;
  for (const StageCosts& layer : costs.stages) times.layers.push_back(WorkOf(layer));
  for (std::size_t group = 0; group < model.cluster.groups.size(); ++group) {
    PENSTOCK_TRY(const StageCosts own, CostsOfWhole(model.OnGroup(group)));
    times.ranks.insert(times.ranks.end(), Index(RanksOf(model, model.cluster.groups[group])),
                       WorkOf(own));
  }
  return times;
}

Result<TimeParts> TimePartsOf(const Scenario& scenario, const JobDivision& division) {
  PENSTOCK_TRY(ModelOnCluster model, Load(scenario, division));
  double part = 1;  // of the layers that are computed again
  if (IsBlock(model)) {
    part = std::min(1.0, static_cast<double>(model.recompute.layers * division.pipeline) /
                             static_cast<double>(model.shape.layers));
    model.recompute = {.method = Recompute::Method::kUniform};
  }
  PENSTOCK_TRY(const StageCosts again, CostsOfWhole(model));
  model.recompute = {};
  PENSTOCK_TRY(const StageCosts moved, CostsOfWhole(model));
  model.batch.profile.offloaded_layers = model.batch.profile.offloaded_modules = 0;
  PENSTOCK_TRY(const StageCosts costs, CostsOfWhole(model));
  constexpr double kEndless = 1e30;
  model.cluster.device.link_bandwidth = model.cluster.device.network_bandwidth = kEndless;
  model.cluster.device.latency = 0;
  // Unlike devices are shown by the first ones.
  model.cluster.groups.clear();
  PENSTOCK_TRY(const StageCosts alone, CostsOfWhole(model));
  const double times = static_cast<double>(division.microbatches) / division.pipeline;
  TimeParts parts;
  parts.compute = times * WorkOf(alone);
  parts.recompute = times * part * (WorkOf(again) - WorkOf(moved));
  parts.offload = times * (WorkOf(moved) - WorkOf(costs));
  parts.communication = times * (WorkOf(costs) - WorkOf(alone));
  return parts;
}

}  // namespace penstock
