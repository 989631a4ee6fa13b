// `penstock plan` with a model: how to train it on these devices.
#pragma once

#include "base/result.h"
#include "cli/plan/plan_output.h"
#include "plan/request/plan_request.h"

namespace penstock {

// Searches and prints the front, the best plan with the command that simulates it, and why others
// lose. Ctrl-C ends the search with the best so far. Requires: the scenario has a model.
Result<int> PlanModel(const PlanRequest& request, const PlanOutput& output);

}  // namespace penstock
