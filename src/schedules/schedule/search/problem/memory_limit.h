// The memory limit of the caller: in microbatches, or in the unit of the costs' activations if
// those are given.
#pragma once

#include <cmath>

#include "schedule/search/problem/problem.h"

namespace penstock {

// Refuses a limit below the memory of one microbatch.
Status CheckMemoryLimit(const ScheduleParams& params, const Placement& placement);

// Returns the largest amount of memory up to `limit` that a rank can hold: limits between two such
// amounts are the same limit. `limit` itself if stages hold different amounts. Whole backwards
// (without `split`) never leave a microbatch at what I keeps for W.
double AmountWithin(double limit, const Costs& costs, int indices, bool split);

// Returns how many whole microbatches fit the limit on every rank. At least one, which
// CheckMemoryLimit guarantees.
inline double MicrobatchesWithin(double limit, const Placement& placement, const Costs& costs) {
  return std::max(1.0, std::floor(limit * (1 + kRounding) / LeastMemory(placement, costs)));
}

}  // namespace penstock
