// The key `topology` of a configuration, and other lists of levels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/costs.h"
#include "schedule/topology.h"

namespace penstock {

// Reads a list of levels that have the keys `known`, and checks them (CheckLevel). Errors:
// kInvalidArgument, naming the line and the key.
Result<Topology> ReadLevels(const YamlMap& map, const std::string& key,
                            const std::vector<std::string_view>& known);

// Reads the levels of the topology. Errors: kInvalidArgument, naming the line and the key.
Result<Topology> ReadTopology(const YamlMap& config);

}  // namespace penstock
