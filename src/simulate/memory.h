// Memory of one rank over time, from a schedule, when its actions ran, and what they hold.
#pragma once

#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// From `time` on, `amount` is held, up to the next point.
// Units: the timeline's; those of costs' activations.
struct MemoryPoint {
  double time = 0;
  double amount = 0;
};
using MemoryCurve = std::vector<MemoryPoint>;

// By the simulator's rule: F takes its activation at its start; I gives back at its end what W does
// not read; W or B gives back the rest at its end. OFFLOAD gives back at its end and RELOAD takes
// at its start; a row that is recomputed holds only its input up to RECOMPUTE; gathered weights are
// held from UNSHARD's start to RESHARD. Times never go down and no two points are equal. Requires:
// the timeline and the costs belong to the schedule.
MemoryCurve MemoryOverTime(const Schedule& schedule, const Timeline& timeline, const Costs& costs,
                           int rank);

// One curve a rank.
std::vector<MemoryCurve> MemoryOverTime(const Schedule& schedule, const Timeline& timeline,
                                        const Costs& costs);

}  // namespace penstock
