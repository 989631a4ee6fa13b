// A simulated schedule as a run of a report.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "scenario/price/simulated.h"

namespace penstock {

// What a rank's F, I and W of one microbatch take, if it is the same for all stages.
std::string CostsText(const PricedSchedule& chosen);

// What the page of one schedule shows first: makespan, bubble, peak memory, messages.
std::vector<KeyFigure> KeyFiguresOf(const Simulated& simulated);

// A report without runs, with the units and costs of the schedule, to which it refers.
ReportInput ReportOf(const Simulated& simulated);

// The run refers to `simulated` and `schedule`, which must outlive it. Requires: as ExplanationOf.
ReportRun RunOf(const Simulated& simulated, std::string label, const Schedule& schedule);

// A report of all runs, with what to try next. A measured run belongs to the schedule before it.
// `all` must outlive it. Requires: as ExplanationOf.
ReportInput ExplainedReport(const Scenario& scenario, const std::vector<Simulated>& all);

}  // namespace penstock
