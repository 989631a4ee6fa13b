// `penstock plan` with a model: how to train it on these devices.
#pragma once

#include "base/result.h"
#include "cli/options/output_format.h"
#include "plan/search/search.h"

namespace penstock {

// Searches and prints the front, the best plan with the command that simulates it, and why others
// lose. Ctrl-C ends the search with the best so far.
Result<int> PlanModel(PlanQuestion question, const std::string& output, OutputFormat format);

}  // namespace penstock
