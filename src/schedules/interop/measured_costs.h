// Costs from measured times.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// Returns the medians of each stage's times. If a stage runs only full backwards, backward_input
// has their time. Overlapped pairs count only where a stage has no other action of that kind.
// Memory is in activations of one rank and microbatch. Requires: one span per action.
Costs MedianCosts(const Schedule& schedule, const Timeline& timeline);

}  // namespace penstock
