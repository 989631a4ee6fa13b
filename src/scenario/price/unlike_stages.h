// Stages of a model whose devices differ: `stage_tensor`, `stage_data` and `stage_recompute`.
//
// Each stage divides every microbatch among its own replicas, as Aceso (Liu et al., 2024) and Alpa
// do; the pipeline itself has no replicas. Without `layout`, the stages divide the layers so that
// all take equally long.
#pragma once

#include "base/result.h"
#include "scenario/price/stage_costs.h"
#include "scenario/scenario.h"

namespace penstock {

// Whether a scenario has such stages.
bool HasUnlikeStages(const Scenario& scenario);

// Returns their costs. Requires: HasUnlikeStages, and a model. Errors: kInvalidArgument about a
// field that has another number of stages, or devices that do not divide the model.
Result<Costs> CostsOfUnlikeStages(const Scenario& scenario, const CostShape& shape);

// Returns the devices of all stages. Requires: as above.
Result<int> DevicesOfUnlikeStages(const Scenario& scenario, int stages);

}  // namespace penstock
