// Stages with devices of their own, which divide the layers so that all take equally long.
#pragma once

#include <cstddef>
#include <vector>

#include "cost_model/model_costs.h"

namespace penstock {

// Returns the costs of stages: stage i computes its part of the model as `models[of_stage[i]]`
// says, which differ only in the devices, the samples and the recomputation of a stage. Stages may
// have parts of layers, as systems have that divide models by operators (Liu et al., Aceso, 2024).
// Requires: CheckDivision of each succeeds. Errors: as CostsOfModel.
Result<ModelCosts> CostsOfBalancedStages(const std::vector<ModelOnCluster>& models,
                                         const std::vector<std::size_t>& of_stage);

}  // namespace penstock
