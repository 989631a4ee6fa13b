// The memory of one rank over time, from a schedule, its timeline and its costs.
#pragma once

#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// From `time` until the next point the rank holds `amount`.
// Units: the timeline's; the costs' unit of activations.
struct MemoryPoint {
  double time = 0;
  double amount = 0;
};
using MemoryCurve = std::vector<MemoryPoint>;

// The largest amount of a curve; 0 of an empty one.
double PeakOf(const MemoryCurve& curve);

// Follows the simulator's rule (memory_changes.h): activations, and weights that UNSHARD gathers.
// Times never decrease and no two points are equal.
// Requires: the timeline and the costs belong to the schedule.
MemoryCurve MemoryOverTime(const Schedule& schedule, const Timeline& timeline, const Costs& costs,
                           int rank);

// Returns one curve per rank.
std::vector<MemoryCurve> MemoryOverTime(const Schedule& schedule, const Timeline& timeline,
                                        const Costs& costs);

}  // namespace penstock
