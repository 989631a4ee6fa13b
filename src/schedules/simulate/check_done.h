// Whether a simulated schedule has run to its end. Private to simulate/.
#pragma once

#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "simulate/arrivals.h"
#include "simulate/engine_state.h"

namespace penstock {

// Returns an error that names the waiting ranks and what they wait for, if any.
Status CheckDone(const Schedule& schedule, const std::vector<LaneState>& ranks,
                 const Arrivals& arrivals);

}  // namespace penstock
