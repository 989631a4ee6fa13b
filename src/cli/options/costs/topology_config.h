// The key `topology` of a configuration.
#pragma once

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/costs.h"
#include "schedule/topology.h"

namespace penstock {

// Reads the list of levels. Errors: kInvalidArgument, naming the line and the key.
Result<Topology> ReadTopology(const YamlMap& config);

}  // namespace penstock
