// Building blocks of a vee: the actions of one microbatch, in slots, such that they can repeat
// every period without conflict.
#pragma once

#include <vector>

#include "schedule/search/patterns/period_pattern.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns the blocks with uniform offsets that lead to the shortest schedules of the problem, best
// first: at most `count`, fewer if few stay within the memory limit. Returns none if the problem is
// so large that only a handful could be tried.
// Requires: split, no slices, a vee.
std::vector<PeriodPattern> BestUniformBlocks(const Problem& problem, std::size_t count);

}  // namespace penstock
