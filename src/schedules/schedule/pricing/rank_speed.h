// What ranks add to the times of their stages.
#pragma once

#include <map>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

// Adds the time of a launch to each action that computes a stage: F, I, W, RECOMPUTE, and once to a
// whole B.
void AddLaunches(Costs& costs, double launch);

// Multiplies the times of all stages of a rank by its factor, for each rank in `factors`.
// Errors: kInvalidArgument if the placement has no such rank, a factor is not above 0, or a
// time becomes longer than kMostTime. The costs are then changed in part.
Status SlowDown(Costs& costs, const Placement& placement, const std::map<int, double>& factors);

}  // namespace penstock
