// Timeline: when each action of a schedule ran, simulated or measured.
//
// Units: the cost model's for a simulated run, seconds for a real one.
#pragma once

#include <vector>

namespace penstock {

struct Span {
  double start = 0;
  double end = 0;
};

// spans[rank][i] is the time of schedule.lanes[rank][i]. The owner keeps the schedule.
struct Timeline {
  std::vector<std::vector<Span>> spans;
};

}  // namespace penstock
