#include "scenario/build/unlike_stages.h"

#include <map>
#include <tuple>

#include "analytic/recompute.h"
#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// What a stage has of its own.
struct StageDevices {
  int tensor = 1, data = 1;
  std::string recompute = {};  // empty: the scenario's

  auto operator<=>(const StageDevices&) const = default;
};

std::vector<std::string> SplitAtCommas(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::vector<std::string>> PartsOf(const char* field, const std::string& text, int stages) {
  std::vector<std::string> parts = SplitAtCommas(text);
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
  auto parsed = ParseRecompute(stage.recompute);
  if (!parsed) return InvalidParameter("stage_recompute", ": {}", parsed.error().line());
  model.recompute = *parsed;
  return model;
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
  if (shape.replicas > 1 || scenario.shards_vocabulary()) {
    return InvalidParameter("stage_tensor",
                            ": has no price with two chains of stages or a sharded vocabulary");
  }
  PENSTOCK_TRY(const std::vector<StageDevices> stages, ReadStages(scenario, shape.stages));
  Costs costs;
  std::map<StageDevices, Costs> known;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    auto found = known.find(stages[i]);
    if (found == known.end()) {
      PENSTOCK_TRY(const ModelOnCluster of_stage, ModelOnStage(model, stages[i]));
      PENSTOCK_TRY(Costs all, CostsOfChains(of_stage, {shape.stages, shape.slices, 0}, 1));
      found = known.emplace(stages[i], std::move(all)).first;
    }
    const Costs& all = found->second;
    if (i == 0) costs = all;
    costs.stages[i] = all.stages[i];
    // Stages are on several nodes in general, so that the slowest of their links counts.
    costs.comm = std::max(costs.comm, all.comm);
    costs.message_bytes = std::max(costs.message_bytes, all.message_bytes);
    const std::size_t slices = all.by_slice.size() / stages.size();
    for (std::size_t slice = 0; slice < slices; ++slice) {
      costs.by_slice[i * slices + slice] = all.by_slice[i * slices + slice];
    }
  }
  costs.topology = {};
  return costs;
}

Result<int> DevicesOfUnlikeStages(const Scenario& scenario, int stages) {
  PENSTOCK_TRY(const std::vector<StageDevices> all, ReadStages(scenario, stages));
  int devices = 0;
  for (const StageDevices& stage : all) devices += stage.tensor * stage.data;
  return devices;
}

}  // namespace penstock
