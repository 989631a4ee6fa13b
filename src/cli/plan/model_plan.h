// `penstock plan` with a model: how to train it on these devices.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options/output_format.h"
#include "plan/request/plan_request.h"

namespace penstock {

// What to write of the fastest plan; empty: nothing.
struct PlanOutputs {
  std::string schedule;  // the path of a CSV file
  std::string configs;   // a folder for configurations that run it
};

// Searches and prints the front, the best plan with the command that simulates it, and why others
// lose. Ctrl-C ends the search with the best so far. Requires: the scenario has a model.
Result<int> PlanModel(const PlanRequest& request, const PlanOutputs& outputs, OutputFormat format);

}  // namespace penstock
