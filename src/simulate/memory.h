// The memory of one rank over time, from a schedule, its timeline and its costs.
#pragma once

#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// From `time` until the next point the rank holds `amount`.
// Units: the timeline's; those of costs' activations.
struct MemoryPoint {
  double time = 0;
  double amount = 0;
};
using MemoryCurve = std::vector<MemoryPoint>;

// Follows the simulator's rule. F allocates its activation at its start. I frees at its end what W
// does not read; W or B frees the rest at its end. OFFLOAD frees at its end and RELOAD allocates at
// its start. S allocates its softmax at its start, and T frees it at its end. A microbatch that is
// recomputed holds only its input until RECOMPUTE. Unsharded
// weights exist from UNSHARD's start to RESHARD. Times never decrease and no two points are equal.
// Requires: the timeline and the costs belong to the schedule.
MemoryCurve MemoryOverTime(const Schedule& schedule, const Timeline& timeline, const Costs& costs,
                           int rank);

// Returns one curve per rank.
std::vector<MemoryCurve> MemoryOverTime(const Schedule& schedule, const Timeline& timeline,
                                        const Costs& costs);

}  // namespace penstock
