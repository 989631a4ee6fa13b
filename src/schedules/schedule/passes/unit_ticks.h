// The tick of each action if every compute action and pass of the vocabulary takes one tick and
// messages take none. Private to passes/.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/stage_edges.h"

namespace penstock {

using Tick = std::int32_t;

struct UnitTicks {
  // By rank and position. An action that does not compute has the tick of the next one that does,
  // or follows the last.
  std::vector<std::vector<Tick>> ticks;
  bool has_communication = false;  // there is a SEND or RECV; `ticks` is incomplete
};

// Returns the ticks in linear time. `edges` are the schedule's EdgesOf.
// Requires: the schedule is valid; throws InternalError if a rank waits forever.
UnitTicks RunInTicks(const Schedule& schedule, const std::vector<StageEdges>& edges);

}  // namespace penstock
