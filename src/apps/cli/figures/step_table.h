// Training steps of simulated schedules with a model.
#pragma once

#include <vector>

#include "report/table.h"
#include "scenario/price/simulated.h"

namespace penstock {

// Whether all schedules have the time of a step.
bool HaveSteps(const std::vector<Simulated>& all);

// One row per schedule: the time of a step with what follows the pipeline, throughput, and the peak
// memory of the worst rank with its states. Requires: HaveSteps.
Table StepTable(const std::vector<Simulated>& all);

}  // namespace penstock
