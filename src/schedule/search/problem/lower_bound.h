// What no schedule of a problem can beat.
#pragma once

#include "schedule/search/problem/problem.h"

namespace penstock {

// No schedule is shorter: for each rank, its first input's way in, its work, the time that it must
// idle before its first gradient because more forwards would not fit the memory, and the time that
// all microbatches take to pass through its memory.
double LowerBound(const Problem& problem);

}  // namespace penstock
