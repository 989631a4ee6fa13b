#include "schedule/cost_files/cost_list.h"

#include <fmt/ranges.h>

#include <functional>
#include <optional>

#include "base/units.h"

namespace penstock {
namespace {

constexpr std::string_view kBackward = "backward";

// A number; of memory also a size with its unit ("1.5GiB"), which sets `in_bytes`.
Result<double> ReadCost(const YamlMap& map, const StageCost& cost, bool& in_bytes) {
  const std::string key(cost.name);
  PENSTOCK_TRY(const std::optional<std::string> text, map.Text(key));
  const Result<std::int64_t> bytes = ParseBytes(text.value_or(""));
  in_bytes = cost.is_memory() && bytes;
  double value = 0;
  if (in_bytes) {
    value = static_cast<double>(*bytes);
  } else {
    PENSTOCK_TRY(const std::optional<double> number, map.Number(key));
    value = *number;
  }
  const Status status = CheckCost(cost, value);
  if (!status) return map.Refuse(key, "{}", status.error().line());
  return value;
}

// Reads the time of a whole B, at most the sum of I and W.
Status ReadBackward(const YamlMap& map, StageCosts& stage) {
  PENSTOCK_TRY(const std::optional<double> backward, map.Number(std::string(kBackward)));
  if (!backward) return {};
  const double sum = stage.backward_input + stage.backward_weight;
  if (!(*backward >= 0 && *backward <= sum)) {
    return map.Refuse(std::string(kBackward),
                      "give 0 to {}, the sum of backward_input and backward_weight", sum);
  }
  stage.saved_by_whole_backward = sum - *backward;
  return {};
}

struct ReadCosts {
  StageCosts costs;
  bool in_bytes = false;  // whether its activations are in bytes
};

Result<ReadCosts> ReadStage(const YamlMap& map) {
  ReadCosts entry;
  StageCosts& stage = entry.costs;
  for (const StageCost& cost : kStageCosts) {
    const std::string key(cost.name);
    if (!cost.in_files || !map.Has(key)) {
      stage.*cost.value = cost.Default(stage);
      continue;
    }
    bool in_bytes = false;
    PENSTOCK_TRY(stage.*cost.value, ReadCost(map, cost, in_bytes));
    if (cost.value == &StageCosts::activation) entry.in_bytes = in_bytes;
    if (cost.is_memory() && in_bytes != entry.in_bytes && stage.*cost.value != 0) {
      return map.Refuse(key, "give it and activation both with a unit, or neither");
    }
    if (cost.at_most && stage.*cost.value > stage.*cost.at_most) {
      return map.Refuse(key, "must be at most {}, not {}", stage.*cost.at_most, stage.*cost.value);
    }
  }
  PENSTOCK_TRY_STATUS(ReadBackward(map, stage));
  return entry;
}

std::vector<std::string_view> CostKeys() {
  std::vector<std::string_view> keys;
  for (const StageCost& cost : kStageCosts) {
    if (cost.in_files) keys.push_back(cost.name);
  }
  keys.push_back(kBackward);
  return keys;
}

// Reads the maps of a list. Each has its costs and the key `more`, which layers_of reads.
Result<CostList> ReadCostList(const YamlMap& config, const std::string& key, std::string_view more,
                              const std::function<Result<int>(const YamlMap& map)>& layers_of) {
  const YAML::Node list = config.Node(key);
  if (!list.IsSequence() || list.size() == 0) {
    return config.Refuse(key, "a list of maps is needed, with {}", fmt::join(CostKeys(), ", "));
  }
  std::vector<std::string_view> known = CostKeys();
  if (!more.empty()) known.push_back(more);
  CostList costs;
  for (const YAML::Node& node : list) {
    PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "an entry of " + key));
    PENSTOCK_TRY_STATUS(map.RequireKnown(known));
    PENSTOCK_TRY(const ReadCosts read, ReadStage(map));
    if (!costs.entries.empty() && costs.in_bytes != read.in_bytes) {
      return config.Refuse(key, "give every activation with a unit, or none");
    }
    costs.in_bytes = read.in_bytes;
    PENSTOCK_TRY(const int layers, layers_of(map));
    costs.entries.push_back({layers, read.costs});
    if (CountLayers(costs.entries) > kMostLayers) {
      return map.Refuse(more.empty() ? "forward" : "layers", "at least 1, and at most {} in all",
                        kMostLayers);
    }
  }
  return costs;
}

}  // namespace

Result<CostList> ReadStageCosts(const YamlMap& config) {
  return ReadCostList(config, "stage_costs", "", [](const YamlMap&) -> Result<int> { return 1; });
}

Result<CostList> ReadLayerCosts(const YamlMap& config) {
  return ReadCostList(config, "layer_costs", "layers", [](const YamlMap& map) -> Result<int> {
    PENSTOCK_TRY(const std::optional<int> layers, map.Int("layers"));
    if (layers.value_or(1) >= 1) return layers.value_or(1);
    return map.Refuse("layers", "at least 1, and at most {} in all", kMostLayers);
  });
}

}  // namespace penstock
