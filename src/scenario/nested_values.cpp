#include "scenario/nested_values.h"

#include <fmt/ranges.h>

#include "schedule/cost_files/topology_config.h"

namespace penstock {
namespace {

// One map, without costs that have the value that a missing key has.
std::string EntryText(const StageCosts& stage, int layers, bool in_bytes) {
  std::vector<std::string> fields;
  if (layers != 1) fields.push_back(fmt::format("layers: {}", layers));
  for (const StageCost& cost : kStageCosts) {
    if (!cost.in_files || !cost.IsNeeded(stage)) continue;
    const double value = stage.*cost.value;
    fields.push_back(cost.is_memory() && in_bytes ? fmt::format("{}: {:.0f} B", cost.name, value)
                                                  : fmt::format("{}: {}", cost.name, value));
  }
  if (stage.saved_by_whole_backward != 0)
    fields.push_back(fmt::format("backward: {}", stage.Backward()));
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
