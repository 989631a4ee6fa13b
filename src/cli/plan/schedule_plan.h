// `penstock plan` without a model: the best schedule for costs and a memory limit.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options/output_format.h"
#include "plan/request/plan_request.h"

namespace penstock {

// Searches, prints the front and the best schedule, and writes the latter to `output` unless it is
// empty. Ctrl-C ends the search with the best so far. Requires: the scenario has no model.
Result<int> PlanSchedules(const PlanRequest& request, const std::string& output,
                          OutputFormat format);

}  // namespace penstock
