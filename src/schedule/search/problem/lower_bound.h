// A lower bound on the makespan of a problem.
#pragma once

#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns a makespan that no schedule is below. It considers for each rank when its first input can
// arrive, its work, the time that it must idle before its first gradient because more forwards
// would not fit the memory, and the time that all microbatches take to pass through its memory.
double LowerBound(const Problem& problem);

}  // namespace penstock
