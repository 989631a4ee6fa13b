// Lower bounds on what any schedule of a placement takes, whatever its order.
#pragma once

#include "schedule/catalog.h"
#include "schedule/placement.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns a bound on the objective (the makespan, or the longest span) of every schedule of the
// placement whose ranks hold at most `memory_limit`, with split or whole backwards (only the latter
// if `split` is false), and with overlapped pairs at the price of costs.overlap.
double LengthBound(const Placement& placement, const Costs& costs, int microbatches,
                   double memory_limit, Objective objective, bool split = true);

}  // namespace penstock
