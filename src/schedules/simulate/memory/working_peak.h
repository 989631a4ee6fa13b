// The most that a rank holds with what its actions need while they run, without a timeline.
#pragma once

#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct WorkingPeak {
  double activations = 0;  // and gathered shards
  double workspace = 0;    // of the action that runs then

  double total() const { return activations + workspace; }
};

// Requires: the costs belong to the schedule. Actions of a lane are taken one after the other, also
// actions that run concurrently.
WorkingPeak WorkingPeakOf(const Schedule& schedule, const Costs& costs, int rank);

}  // namespace penstock
