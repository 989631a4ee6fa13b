// The key `collectives` of a configuration: times of UNSHARD and REDUCE_GRAD from their sizes.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/costs.h"
#include "schedule/pricing/collective_time.h"

namespace penstock {

struct CollectivesConfig {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto;
  CollectiveGroup group;  // the replicas of a stage
};

// Errors: kInvalidArgument, naming the line and the key.
Result<CollectivesConfig> ReadCollectives(const YamlMap& config);

// Sets the times of UNSHARD and REDUCE_GRAD. `bytes` is the size of a unit of memory, and `reduced`
// the amount of a stage's gradients that it sends to other replicas; by default the amount of its
// gathered weights. Errors: kInvalidArgument for a time above kMostTime.
Status PriceCollectives(const CollectivesConfig& collectives, double bytes,
                        std::optional<double> reduced, Costs& costs);

}  // namespace penstock
