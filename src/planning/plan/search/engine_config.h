// A division of a model as a configuration of `penstock train`.
#pragma once

#include "base/result.h"
#include "config/train_config.h"
#include "plan/search/framework_limits.h"

namespace penstock {

// Returns the configuration without its schedule. Errors: kInvalidArgument about a dimension or the
// model.
Result<TrainConfig> EngineConfigOf(const DividedModel& job);

// Checks the configuration as `penstock train` does, with the schedule if there is one. Errors: as
// EngineConfigOf.
Status CheckEngineRuns(const DividedModel& job);

}  // namespace penstock
