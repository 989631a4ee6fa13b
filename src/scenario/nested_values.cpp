#include "scenario/nested_values.h"

#include <fmt/ranges.h>

#include "schedule/cost_files/topology_config.h"

namespace penstock {
namespace {

struct WrittenCost {
  const char* key;
  double StageCosts::*field;
  bool is_memory;
};
constexpr WrittenCost kWrittenCosts[] = {
    {"forward", &StageCosts::forward, false},
    {"backward_input", &StageCosts::backward_input, false},
    {"backward_weight", &StageCosts::backward_weight, false},
    {"activation", &StageCosts::activation, true},
    {"activation_after_i", &StageCosts::activation_after_i, true},
    {"input_activation", &StageCosts::input_activation, true},
    {"recompute", &StageCosts::recompute, false},
    {"step", &StageCosts::step, false},
    {"unshard", &StageCosts::unshard, false},
    {"reduce", &StageCosts::reduce, false},
    {"gathered", &StageCosts::gathered, true},
    {"weights", &StageCosts::weights, true},
    {"version", &StageCosts::version, true},
    {"gradients", &StageCosts::gradients, true},
    {"optimizer", &StageCosts::optimizer, true},
    {"workspace", &StageCosts::workspace, true},
    {"message_scale", &StageCosts::message_scale, false}};

// One map, without costs that have the value that a missing key has.
std::string EntryText(const StageCosts& costs, int layers, bool in_bytes) {
  std::vector<std::string> fields;
  if (layers != 1) fields.push_back(fmt::format("layers: {}", layers));
  for (const auto& [key, field, is_memory] : kWrittenCosts) {
    const double value = costs.*field;
    const std::string_view name = key;
    const bool is_needed = name == "forward" || name == "backward_input" ||
                           name == "backward_weight" || name == "activation";
    double usual = 0;
    if (name == "activation_after_i") usual = costs.activation;
    if (name == "recompute") usual = costs.forward;
    if (name == "version") usual = costs.weights;
    if (name == "message_scale") usual = 1;
    if (!is_needed && value == usual) continue;
    fields.push_back(is_memory && in_bytes ? fmt::format("{}: {:.0f} B", key, value)
                                           : fmt::format("{}: {}", key, value));
  }
  if (costs.saved_by_whole_backward != 0)
    fields.push_back(fmt::format("backward: {}", costs.Backward()));
  return fmt::format("- {{{}}}\n", fmt::join(fields, ", "));
}

// One line per level, each after `indent`.
std::string LevelsText(const Topology& topology, std::string_view indent) {
  std::string text;
  for (const LinkLevel& level : topology.levels) {
    text +=
        fmt::format("{}- {{level: {}, latency: {}", indent, YamlQuote(level.name), level.latency);
    if (level.ranks != LinkLevel::kAllRanks) text += fmt::format(", ranks: {}", level.ranks);
    if (level.bandwidth != 0) text += fmt::format(", bandwidth: {}", level.bandwidth);
    if (level.shared) text += ", links: shared";
    if (level.half_duplex) text += ", duplex: half";
    text += "}\n";
  }
  return text;
}

}  // namespace

std::string YamlQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

Status ReadNested(const YamlMap& config, const std::string& key, CostList& to) {
  PENSTOCK_TRY(to, key == "stage_costs" ? ReadStageCosts(config) : ReadLayerCosts(config));
  return {};
}

Status ReadNested(const YamlMap& config, const std::string&, Topology& to) {
  PENSTOCK_TRY(to, ReadTopology(config));
  return {};
}

Status ReadNested(const YamlMap& config, const std::string&, CollectivesConfig& to) {
  PENSTOCK_TRY(to, ReadCollectives(config));
  return {};
}

std::string WriteNested(const CostList& costs) {
  std::string text = "\n";
  for (const LayerGroup& entry : costs.entries) {
    text += EntryText(entry.costs, entry.layers, costs.in_bytes);
  }
  return text;
}

std::string WriteNested(const Topology& topology) { return "\n" + LevelsText(topology, ""); }

std::string WriteNested(const CollectivesConfig& collectives) {
  return fmt::format("\n  algorithm: {}\n  replicas: {}\n  levels:\n{}",
                     kCollectiveAlgorithmNames[static_cast<std::size_t>(collectives.algorithm)],
                     collectives.group.members, LevelsText(collectives.group.links, "  "));
}

}  // namespace penstock
