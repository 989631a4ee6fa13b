// Lower bounds on the makespan and the spans of a problem.
#pragma once

#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns a bound that no schedule of the problem is below, in the problem's objective. For both
// objectives it considers the work of each rank, the time that a rank must idle before its first
// gradient because more forwards would not fit the memory, and the time that all microbatches take
// to pass through its memory; for a makespan also when a rank's first input can arrive, and for the
// longest span what must run elsewhere between a rank's first and last action.
double LowerBound(const Problem& problem);

}  // namespace penstock
