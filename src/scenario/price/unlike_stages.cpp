#include "scenario/price/unlike_stages.h"

#include <map>
#include <tuple>

#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "cost_model/balanced_stages.h"
#include "cost_model/recompute.h"

namespace penstock {
namespace {

// What a stage has of its own.
struct StageDevices {
  int tensor = 1, data = 1;
  std::string recompute = {};  // empty: the scenario's

  bool operator<(const StageDevices& other) const {
    return std::tie(tensor, data, recompute) < std::tie(other.tensor, other.data, other.recompute);
  }
};

Result<std::vector<std::string>> PartsOf(const char* field, const std::string& text, int stages) {
  std::vector<std::string> parts = SplitAt(text, ',');
  if (parts.size() == Index(stages)) return parts;
  return InvalidParameter(field, "{}: has {} values, the schedule {} stages", Quote(text),
                          parts.size(), stages);
}

Result<std::vector<StageDevices>> ReadStages(const Scenario& scenario, int stages) {
  std::vector<StageDevices> all(Index(stages));
  const std::tuple<const char*, const std::optional<std::string>*, int StageDevices::*> counts[] = {
      {"stage_tensor", &scenario.stage_tensor, &StageDevices::tensor},
      {"stage_data", &scenario.stage_data, &StageDevices::data}};
  for (const auto& [field, text, member] : counts) {
    if (!*text) continue;
    PENSTOCK_TRY(const std::vector<std::string> parts, PartsOf(field, **text, stages));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto count = ParseInt(parts[i]);
      if (!count || *count < 1) {
        return InvalidParameter(field, "{}: give whole numbers of at least 1 (2,2,4)",
                                Quote(**text));
      }
      all[i].*member = *count;
    }
  }
  if (!scenario.stage_recompute) return all;
  PENSTOCK_TRY(const std::vector<std::string> parts,
               PartsOf("stage_recompute", *scenario.stage_recompute, stages));
  for (std::size_t i = 0; i < parts.size(); ++i) all[i].recompute = parts[i];
  return all;
}

// The model as the devices of one stage compute it.
Result<ModelOnCluster> ModelOnStage(ModelOnCluster model, const StageDevices& stage) {
  if (model.batch.samples % stage.data != 0) {
    return InvalidParameter("stage_data", "{}: does not divide `micro_batch_size`, {}", stage.data,
                            model.batch.samples);
  }
  if (model.shape.kv_heads % stage.tensor != 0) {
    return InvalidParameter("stage_tensor", "{}: does not divide the {} heads of {}", stage.tensor,
                            model.shape.kv_heads, model.shape.name);
  }
  model.batch.samples /= stage.data;
  model.batch.tensor = stage.tensor;
  model.data = stage.data;
  if (stage.recompute.empty()) return model;
  auto parsed = ParseRecompute(stage.recompute, model.batch.profile.get().recomputes_by_op);
  if (!parsed) return InvalidParameter("stage_recompute", ": {}", parsed.error().line());
  model.recompute = *parsed;
  return model;
}

// Returns the costs of stages whose layers `layout` gives.
Result<ModelCosts> CostsOfGivenStages(const std::vector<ModelOnCluster>& models,
                                      const std::vector<std::size_t>& of_stage,
                                      const CostShape& shape) {
  std::vector<ModelCosts> all;
  for (const ModelOnCluster& model : models) {
    PENSTOCK_TRY(ModelCosts costs,
                 CostsOfModel(model, {.stages = shape.stages, .slices = shape.slices}));
    all.push_back(std::move(costs));
  }
  ModelCosts costs = all[of_stage.front()];
  // Stages are on several nodes in general, so that the slowest of their links counts.
  costs.topology = {};
  const std::size_t slices = costs.by_slice.size() / of_stage.size();
  for (std::size_t stage = 0; stage < of_stage.size(); ++stage) {
    const ModelCosts& own = all[of_stage[stage]];
    costs.stages[stage] = own.stages[stage];
    costs.states[stage] = own.states[stage];
    costs.comm = std::max(costs.comm, own.comm);
    costs.message_bytes = std::max(costs.message_bytes, own.message_bytes);
    costs.peak_part = std::max(costs.peak_part, own.peak_part);
    for (std::size_t i = stage * slices; i < (stage + 1) * slices; ++i) {
      costs.by_slice[i] = own.by_slice[i];
    }
  }
  return costs;
}

}  // namespace

bool HasUnlikeStages(const Scenario& scenario) {
  return scenario.stage_tensor || scenario.stage_data || scenario.stage_recompute;
}

Result<Costs> CostsOfUnlikeStages(const Scenario& scenario, const CostShape& shape) {
  PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
  if (model.ranks_per_stage() > 1) {
    return InvalidParameter("stage_tensor",
                            ": stages say themselves how many devices they have; leave `tensor`, "
                            "`context` and `data_parallel` out");
  }
  if (!model.cluster.groups.empty()) {
    return InvalidParameter("device",
                            "{}: stages with devices of their own have no price on "
                            "unlike devices",
                            *scenario.device);
  }
  if (shape.slices > 1 && !scenario.layout) {
    return InvalidParameter("stage_tensor", ": with `slices`, give `layout`");
  }
  if (shape.replicas > 1 || scenario.shards_vocabulary()) {
    return InvalidParameter("stage_tensor",
                            ": has no price with two chains of stages or a sharded vocabulary");
  }
  PENSTOCK_TRY(const std::vector<StageDevices> stages, ReadStages(scenario, shape.stages));
  std::vector<ModelOnCluster> models;  // one per kind of stage
  std::vector<std::size_t> of_stage;
  std::map<StageDevices, std::size_t> kinds;
  for (const StageDevices& stage : stages) {
    const auto [kind, added] = kinds.emplace(stage, models.size());
    if (added) {
      PENSTOCK_TRY(ModelOnCluster of_kind, ModelOnStage(model, stage));
      models.push_back(std::move(of_kind));
    }
    of_stage.push_back(kind->second);
  }
  PENSTOCK_TRY(const ModelCosts costs, scenario.layout ? CostsOfGivenStages(models, of_stage, shape)
                                                       : CostsOfBalancedStages(models, of_stage));
  return ChainsOf(costs, 1);
}

Result<int> DevicesOfUnlikeStages(const Scenario& scenario, int stages) {
  PENSTOCK_TRY(const std::vector<StageDevices> all, ReadStages(scenario, stages));
  int devices = 0;
  for (const StageDevices& stage : all) devices += stage.tensor * stage.data;
  return devices;
}

}  // namespace penstock
