// The time of a step when steps follow each other.
#pragma once

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

inline constexpr int kMostRepeats = 1000;  // that users may ask for

// Returns the lanes of `count` consecutive steps: each step has the next microbatch indices, and a
// rank starts it as soon as it has finished its own part of the last one. STEP actions that
// wait for all ranks (Costs::steps_wait_for_all) are barriers between the steps.
// Requires: a flush, or count 1; count >= 1.
Schedule Repeated(const Schedule& schedule, int count);

// Returns the time by which each further step moves the end: the mean over the last half of the
// steps that the lanes hold, at least two. A step ends with the last of its actions on any rank.
// Errors: as Simulate.
Result<double> SteadyStepTime(const Schedule& schedule, const Costs& costs);

}  // namespace penstock
