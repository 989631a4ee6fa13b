// A lower bound from the microbatches that a rank can have in flight.
#pragma once

#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns a bound that no schedule of the problem is below, in the problem's objective: the memory
// of a rank admits a microbatch only after an earlier one has passed through the rest of the chain
// and its memory has been freed, for which the rank itself must compute.
// Returns 0 for more than one chain.
double InFlightBound(const Problem& problem);

}  // namespace penstock
