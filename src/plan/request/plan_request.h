// What a user asks `penstock plan` for, on the command line or from Python.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/schedule/plan_schedule.h"
#include "plan/search/search.h"
#include "scenario/scenario.h"

namespace penstock {

struct PlanRequest {
  Scenario scenario;
  std::vector<int> chunks = {};     // stages per rank that are allowed; empty: the default
  std::optional<int> global_batch;  // samples of a step, of all replicas
  std::vector<std::string> schedules = {}, excluded = {};  // that are allowed, and that are not
  std::optional<std::string> framework = {};               // whose plans are asked for
};

// Each refuses what has no effect on the question. Errors: kInvalidArgument about a field of the
// scenario, or about "global_batch", "schedule", "exclude" or "for".
//
// Requires: the scenario has a model.
Result<PlanQuestion> ModelQuestionOf(const PlanRequest& request);
// Requires: it has none.
Result<ScheduleQuestion> ScheduleQuestionOf(const PlanRequest& request);

}  // namespace penstock
