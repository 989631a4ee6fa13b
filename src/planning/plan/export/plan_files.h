// The files that run a plan.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/export/plan_job.h"

namespace penstock {

struct PlanFile {
  std::string_view framework;
  std::string path;
  std::optional<Error> reason = {};  // why the framework cannot run the plan; then there is no file
};

// Writes the plan's schedule and a configuration for each framework that can run the plan into a
// folder, which it makes. Replaces or removes files of an earlier plan. Errors: as for writing, and
// kInvalidArgument if a file of such a name is not of a plan.
Result<std::vector<PlanFile>> WritePlanFiles(const TrainingPlan& plan, const std::string& folder);

}  // namespace penstock
