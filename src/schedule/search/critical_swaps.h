// What makes a schedule as long as it is: neighbours on the critical path that could change places.
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

// Pairs of neighbours on the critical path (the chain of actions, each starting when the one before
// it ends or arrives, that ends last) where the second was ready before the first had ended, so
// that it does not depend on it. Swapping one pair leaves the lanes valid; memory is not looked at.
// Requires: `run` has just run `lanes` from the start, in their order.
std::vector<Swap> CriticalSwaps(const Problem& problem, const Squeezer& run,
                                const std::vector<Lane>& lanes);

}  // namespace penstock
