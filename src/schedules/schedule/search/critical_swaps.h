// Finds adjacent actions on the critical path of a schedule that could be swapped.
#pragma once

#include <vector>

#include "schedule/search/problem/problem.h"
#include "schedule/search/squeeze.h"

namespace penstock {

// The actions at `position` and `position + 1` of a rank's lane.
struct Swap {
  int rank = 0;
  std::size_t position = 0;
};

// Returns the pairs of adjacent actions on the critical path where the second was ready before the
// first had ended, so that it does not depend on it. The critical path is the chain of actions that
// ends last (for Objective::kSpan, at the end of the longest span), in which each starts when the
// previous one ends or arrives. Swapping one pair leaves the lanes valid; memory is not considered.
// Requires: `run` has just run `lanes` from the start, in their order.
std::vector<Swap> CriticalSwaps(const Problem& problem, const Squeezer& run,
                                const std::vector<Lane>& lanes);

}  // namespace penstock
