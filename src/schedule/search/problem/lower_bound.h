// Lower bounds on the makespan and the spans of a problem.
#pragma once

#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns what no schedule is below in the problem's objective. For a makespan it considers for
// each rank when its first input can arrive, its work, the time that it must idle before its first
// gradient because more forwards would not fit the memory, and the time that all microbatches take
// to pass through its memory; for the longest span the work of each rank, and what must run
// elsewhere between its first and last action.
double LowerBound(const Problem& problem);

}  // namespace penstock
