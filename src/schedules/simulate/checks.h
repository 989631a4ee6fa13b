// Checks before and after a simulation. Private to simulate/.
#pragma once

#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "simulate/arrivals.h"
#include "simulate/engine_state.h"

namespace penstock {

// Refuses sizes and costs that the simulator cannot run with. Errors: kInvalidArgument.
Status CheckInput(const Schedule& schedule, const Costs& costs);

// Returns an error that names the waiting ranks and what they wait for, if any.
Status CheckDone(const Schedule& schedule, const std::vector<LaneState>& ranks,
                 const Arrivals& arrivals);

}  // namespace penstock
