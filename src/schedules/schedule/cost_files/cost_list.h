// The keys `stage_costs` and `layer_costs` of a configuration: lists of maps of costs.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/cost_files/layer_costs.h"

namespace penstock {

struct CostList {
  std::vector<LayerGroup> entries;  // of stage_costs: one stage each
  bool in_bytes = false;  // whether activations are in bytes; either all of them are, or none
};

// Errors: kInvalidArgument, naming the line and the key.
Result<CostList> ReadStageCosts(const YamlMap& config);
Result<CostList> ReadLayerCosts(const YamlMap& config);

}  // namespace penstock
