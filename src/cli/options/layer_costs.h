// Costs of a model's layers, which fit any number of stages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"

namespace penstock {

// Consecutive layers that cost the same.
struct LayerGroup {
  int layers = 1;
  StageCosts costs;  // of one layer and a whole microbatch
};

inline constexpr int kMostLayers = 1 << 20;

std::int64_t CountLayers(const std::vector<LayerGroup>& groups);

// Returns the costs of a chain of `stages` stages, and of `replicas` such chains, for one of
// `slices` pieces of a microbatch. The layers are cut as `penstock train` cuts them: as evenly as
// possible, longer stages first. A stage costs the sum of its layers.
// Errors: kInvalidArgument for fewer layers than stages.
Result<std::vector<StageCosts>> StagesOfLayers(const std::vector<LayerGroup>& groups, int stages,
                                               int replicas, int slices);

}  // namespace penstock
