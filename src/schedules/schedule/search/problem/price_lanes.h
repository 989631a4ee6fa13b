// The time and memory of lanes, if every rank runs its own in order.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

struct LanePrice {
  double makespan = kNever;      // kNever if the lanes deadlock
  double longest_span = kNever;  // over ranks, from first start to last end
  double peak_memory = kNever;
};

// Returns the times that the simulator finds for the lanes with the problem's costs. Linear in the
// actions. Requires: valid lanes of the problem, without overlapped pairs.
LanePrice PriceLanes(const Problem& problem, const std::vector<Lane>& lanes);

// Returns the most memory that the lanes hold on any rank when each runs in its order.
double PeakMemory(const Problem& problem, const std::vector<Lane>& lanes);

}  // namespace penstock
