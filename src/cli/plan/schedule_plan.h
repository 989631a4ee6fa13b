// `penstock plan` without a model: the best schedule for costs and a memory limit.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/output_format.h"
#include "scenario/scenario.h"

namespace penstock {

// Searches, prints the front and the best schedule, and writes the latter to `output` unless it is
// empty. Ctrl-C ends the search with the best so far. `chunks` are the numbers of stages per rank
// that are allowed; empty: the default.
Result<int> PlanSchedules(const Scenario& scenario, const std::vector<int>& chunks,
                          const std::string& output, OutputFormat format);

}  // namespace penstock
