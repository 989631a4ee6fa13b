// A plan as a configuration of `penstock train`.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Returns the configuration, with the keys that differ from their defaults. `csv` is the path of
// the file that has the schedule already. Errors: kInvalidArgument about what the engine does not
// have, and as ChooseSchedule.
Result<std::string> TrainText(const PlanJob& job, const std::string& csv);

}  // namespace penstock
