#include "schedule/cost_files/topology_config.h"

#include <string>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/units.h"

namespace penstock {
namespace {

// Bytes per unit of time: a number or a size with its unit.
Result<double> ReadBandwidth(const YamlMap& map) {
  PENSTOCK_TRY(const auto text, map.Text("bandwidth"));
  if (!text) return 0;
  if (const auto bytes = ParseBytes(*text); bytes && *bytes > 0) {
    return static_cast<double>(*bytes);
  }
  const auto number = map.Number("bandwidth");
  if (number && **number > 0) return **number;
  return map.Refuse("bandwidth",
                    "{} is not a size per unit of time (50GiB); leave it out if it is unlimited",
                    Quote(*text));
}

// Reads which of two words a key has; the first is the default.
Result<bool> ReadSecond(const YamlMap& map, const std::string& key, const std::string& first,
                        const std::string& second) {
  PENSTOCK_TRY(const auto text, map.Text(key));
  if (!text || *text == first) return false;
  if (*text == second) return true;
  return map.Refuse(key, "{}: give {} or {}{}", Quote(*text), first, second,
                    Suggestion(*text, {first, second}));
}

// Places an error about a level at its key, which may be missing.
tl::unexpected<Error> RefuseLevel(const YamlMap& map, const Error& error) {
  std::string message = error.message;
  message.erase(0, message.find_first_not_of(": "));
  return map.Refuse(error.parameter, "{}: {}", error.where, message);
}

Result<LinkLevel> ReadLevel(const YamlMap& map, const std::string& what,
                            const std::vector<std::string_view>& known) {
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  LinkLevel level;
  PENSTOCK_TRY(const auto name, map.Text("level"));
  if (!name) return map.Refuse("level", "{} needs a name", what);
  level.name = *name;
  PENSTOCK_TRY(const auto ranks, map.Int("ranks"));
  if (ranks && *ranks < 1) return map.Refuse("ranks", "at least 1");
  level.ranks = ranks.value_or(LinkLevel::kAllRanks);
  PENSTOCK_TRY(const auto latency, map.Number("latency"));
  level.latency = latency.value_or(0);
  if (const Status status = CheckTime(level.latency); !status) {
    return map.Refuse("latency", "{}", status.error().line());
  }
  PENSTOCK_TRY(level.bandwidth, ReadBandwidth(map));
  PENSTOCK_TRY(level.shared, ReadSecond(map, "links", "private", "shared"));
  PENSTOCK_TRY(level.half_duplex, ReadSecond(map, "duplex", "full", "half"));
  return level;
}

}  // namespace

Result<Topology> ReadLevels(const YamlMap& map, const std::string& key,
                            const std::vector<std::string_view>& known) {
  Topology topology;
  const YAML::Node node = map.Node(key);
  if (!node.IsSequence() || node.size() == 0) {
    return map.Refuse(key, "a list of levels is needed, the innermost first");
  }
  const std::string what = "an entry of " + key;
  std::vector<YamlMap> maps;
  for (const YAML::Node& entry : node) {
    PENSTOCK_TRY(YamlMap map, YamlMap::Of(entry, what));
    maps.push_back(std::move(map));
    PENSTOCK_TRY(LinkLevel level, ReadLevel(maps.back(), what, known));
    topology.levels.push_back(std::move(level));
    const std::size_t last = maps.size() - 1;
    const Status status = CheckLevel(topology, last);
    if (status) continue;
    // A level that connects all ranks is at fault if another one follows.
    const bool is_before = last > 0 && topology.levels[last - 1].ranks == LinkLevel::kAllRanks;
    return RefuseLevel(maps[is_before ? last - 1 : last], status.error());
  }
  return topology;
}

Result<Topology> ReadTopology(const YamlMap& config) {
  return ReadLevels(config, "topology",
                    {"level", "ranks", "latency", "bandwidth", "links", "duplex"});
}

}  // namespace penstock
