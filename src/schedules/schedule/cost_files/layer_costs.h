// Costs per layer of a model, which fit any number of stages.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"

namespace penstock {

// Consecutive layers with the same costs.
struct LayerGroup {
  int layers = 1;
  StageCosts costs;  // of one layer and a whole microbatch
};

inline constexpr int kMostLayers = 1 << 20;

std::int64_t CountLayers(const std::vector<LayerGroup>& groups);

// Returns the costs of `replicas` chains of `stages` stages each, for one of `slices` slices of a
// microbatch. Layers are divided as in `penstock train` (DivideLayers). A stage costs the sum of
// its layers. Errors: kInvalidArgument for fewer layers than stages.
Result<std::vector<StageCosts>> StagesOfLayers(const std::vector<LayerGroup>& groups, int stages,
                                               int replicas, int slices);

}  // namespace penstock
