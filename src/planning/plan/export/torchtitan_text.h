// A plan as a configuration of torchtitan.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

// Returns the TOML that torchtitan 0.2 reads. `csv` is the path of the schedule's file. Errors:
// kInvalidArgument about what torchtitan does not have.
Result<std::string> TorchtitanText(const PlanJob& job, const std::string& csv);

}  // namespace penstock
