// The memory limit of the caller: in microbatches, or in the unit of the costs' activations if
// those are given.
#pragma once

#include <cmath>

#include "schedule/search/problem/problem.h"

namespace penstock {

// Refuses a limit below the memory of one microbatch.
Status CheckMemoryLimit(const ScheduleParams& params, const Placement& placement);

// Returns how many whole microbatches fit the limit on every rank. At least one, which
// CheckMemoryLimit guarantees.
inline double MicrobatchesWithin(double limit, const Placement& placement, const Costs& costs) {
  return std::max(1.0, std::floor(limit * (1 + kRounding) / LeastMemory(placement, costs)));
}

}  // namespace penstock
