// A plan as overrides of a recipe of Megatron-Bridge.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Returns a file for bash with the arguments of scripts/training/run_recipe.py in the array
// BRIDGE_ARGS. Errors: kInvalidArgument about what Megatron-Bridge does not have, such as a recipe
// for the model.
Result<std::string> BridgeText(const PlanJob& job);

}  // namespace penstock
