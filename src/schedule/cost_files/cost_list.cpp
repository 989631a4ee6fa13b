#include "schedule/cost_files/cost_list.h"

#include <fmt/ranges.h>

#include <functional>
#include <optional>

#include "base/units.h"

namespace penstock {
namespace {

// An amount of activations: a number, or a size with its unit ("1.5GiB"), which sets `in_bytes`.
Status ReadMemory(const YamlMap& map, const char* key, double& field, bool& in_bytes) {
  PENSTOCK_TRY(const std::optional<std::string> text, map.Text(key));
  const Result<std::int64_t> bytes = ParseBytes(text.value_or(""));
  if (bytes) {
    field = static_cast<double>(*bytes);
    in_bytes = true;
    const Status status = CheckMemory(field);
    if (!status) return map.Refuse(key, "{}", status.error().line());
    return {};
  }
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  field = value.value_or(field);
  const Status status = CheckMemory(field);
  if (!status) return map.Refuse(key, "{}", status.error().line());
  return {};
}

struct ReadCosts {
  StageCosts costs;
  bool in_bytes = false;  // whether its activations are in bytes
};

constexpr std::string_view kCostKeys[] = {
    "forward",          "backward_input", "backward_weight",
    "backward",         "activation",     "activation_after_i",
    "input_activation", "weights",        "version",
    "gradients",        "optimizer",      "workspace",
    "gathered",         "recompute",      "step",
    "unshard",          "reduce",         "message_scale"};
struct MemoryKey {
  const char* name;
  double StageCosts::*field;
};
constexpr MemoryKey kMemoryKeys[] = {{"weights", &StageCosts::weights},
                                     {"version", &StageCosts::version},
                                     {"gradients", &StageCosts::gradients},
                                     {"optimizer", &StageCosts::optimizer},
                                     {"workspace", &StageCosts::workspace},
                                     {"gathered", &StageCosts::gathered},
                                     {"input_activation", &StageCosts::input_activation}};

constexpr double kMostScale = 1e6;

// The time of a whole B, which is at most that of I and W.
Status ReadBackward(const YamlMap& map, StageCosts& stage) {
  PENSTOCK_TRY(const std::optional<double> backward, map.Number("backward"));
  if (!backward) return {};
  const double sum = stage.backward_input + stage.backward_weight;
  if (!(*backward >= 0 && *backward <= sum)) {
    return map.Refuse("backward", "give 0 to {}, the sum of backward_input and backward_weight",
                      sum);
  }
  stage.saved_by_whole_backward = sum - *backward;
  return {};
}

// The other amounts of memory.
Status ReadStates(const YamlMap& map, ReadCosts& entry) {
  for (const MemoryKey& key : kMemoryKeys) {
    if (!map.Has(key.name)) continue;
    bool in_bytes = false;
    PENSTOCK_TRY_STATUS(ReadMemory(map, key.name, entry.costs.*key.field, in_bytes));
    if (in_bytes != entry.in_bytes && entry.costs.*key.field != 0) {
      return map.Refuse(key.name, "give it and activation both with a unit, or neither");
    }
  }
  if (!map.Has("version")) entry.costs.version = entry.costs.weights;
  return {};
}

Result<ReadCosts> ReadStage(const YamlMap& map) {
  ReadCosts entry;
  StageCosts& stage = entry.costs;
  const auto read = [&](const char* key, double& field, double otherwise) -> Status {
    PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
    field = value.value_or(otherwise);
    const Status status = CheckTime(field);
    if (!status) return map.Refuse(key, "{}", status.error().line());
    return {};
  };
  PENSTOCK_TRY_STATUS(read("forward", stage.forward, 1));
  PENSTOCK_TRY_STATUS(read("backward_input", stage.backward_input, 1));
  PENSTOCK_TRY_STATUS(read("backward_weight", stage.backward_weight, 1));
  PENSTOCK_TRY_STATUS(read("recompute", stage.recompute, stage.forward));
  PENSTOCK_TRY_STATUS(read("step", stage.step, 0));
  PENSTOCK_TRY_STATUS(read("unshard", stage.unshard, 0));
  PENSTOCK_TRY_STATUS(read("reduce", stage.reduce, 0));
  PENSTOCK_TRY_STATUS(ReadBackward(map, stage));
  PENSTOCK_TRY_STATUS(ReadMemory(map, "activation", stage.activation, entry.in_bytes));
  stage.activation_after_i = stage.activation;
  bool after_in_bytes = entry.in_bytes && !map.Has("activation_after_i");
  PENSTOCK_TRY_STATUS(
      ReadMemory(map, "activation_after_i", stage.activation_after_i, after_in_bytes));
  if (entry.in_bytes != after_in_bytes && stage.activation_after_i != 0) {
    return map.Refuse("activation_after_i", "give it and activation both with a unit, or neither");
  }
  PENSTOCK_TRY(const std::optional<double> scale, map.Number("message_scale"));
  stage.message_scale = scale.value_or(1);
  if (!(stage.message_scale >= 0 && stage.message_scale <= kMostScale)) {
    return map.Refuse("message_scale", "0 to {:.0f} is needed", kMostScale);
  }
  if (stage.activation_after_i > stage.activation) {
    return map.Refuse("activation_after_i", "at most the activation");
  }
  PENSTOCK_TRY_STATUS(ReadStates(map, entry));
  if (stage.input_activation > stage.activation) {
    return map.Refuse("input_activation", "at most the activation");
  }
  return entry;
}

// Reads the maps of a list, each with the key `more` besides its costs; layers_of reads it.
Result<CostList> ReadCostList(const YamlMap& config, const std::string& key, std::string_view more,
                              const std::function<Result<int>(const YamlMap& map)>& layers_of) {
  const YAML::Node list = config.Node(key);
  if (!list.IsSequence() || list.size() == 0) {
    return config.Refuse(key, "a list of maps is needed, with {}", fmt::join(kCostKeys, ", "));
  }
  std::vector<std::string_view> known(std::begin(kCostKeys), std::end(kCostKeys));
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
