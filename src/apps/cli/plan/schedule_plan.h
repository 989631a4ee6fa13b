// `penstock plan` without a model: the best schedule for costs and a memory limit.
#pragma once

#include "base/result.h"
#include "cli/plan/plan_output.h"
#include "plan/request/plan_request.h"

namespace penstock {

// Searches, prints the front and the best schedule, and writes what `output` asks for. Ctrl-C ends
// the search with the best so far. Requires: the scenario has no model.
Result<int> PlanSchedules(const PlanRequest& request, const PlanOutput& output);

}  // namespace penstock
