// The memory limit that the caller gives: in microbatches, or in the unit of the costs' activations
// where those are given.
#pragma once

#include <cmath>

#include "schedule/search/problem/problem.h"

namespace penstock {

// Refuses a limit below what one microbatch takes.
Status CheckMemoryLimit(const ScheduleParams& params, const Placement& placement);

// Whole microbatches that fit the limit on every rank; at least one, which CheckMemoryLimit sees
// to.
inline double MicrobatchesWithin(double limit, const Placement& placement, const Costs& costs) {
  return std::max(1.0, std::floor(limit * (1 + kRounding) / LeastMemory(placement, costs)));
}

}  // namespace penstock
