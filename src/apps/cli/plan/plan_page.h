// The page of a plan: every plan with its figures, its command and its timeline.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "cli/plan/plan_output.h"
#include "plan/request/plan_request.h"
#include "plan/schedule/plan_schedule.h"
#include "plan/search/search.h"
#include "report/table.h"

namespace penstock {

// What else the page has: the object that --json prints, whose figures the page shows; the tables
// with a row for each plan; and where it goes.
struct PlanPageParts {
  const nlohmann::ordered_json& json;
  std::vector<Table> tables;
  const PlanOutput& output;
};

// Write the page. Errors: as for simulating the schedules; kUnavailable if the file cannot be
// written.
Status WriteModelPage(const PlanQuestion& question, const PlanAnswer& answer, PlanPageParts parts);
Status WriteSchedulePage(const ScheduleQuestion& question, const PlanRequest& request,
                         const SchedulePlan& plan, PlanPageParts parts);

}  // namespace penstock
