// When each action runs if every compute action takes one tick and messages take none. Private to
// passes/.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/stage_edges.h"

namespace penstock {

using Tick = std::int32_t;

struct UnitTicks {
  // By rank and position. A cell that does not compute stands in the tick of the next one that
  // does, or behind the last.
  std::vector<std::vector<Tick>> ticks;
  bool has_communication = false;  // a SEND or RECV was met: `ticks` is not complete
};

// Needs a valid schedule (a rank that waits forever is a fatal error); `edges` are its EdgesOf.
// Linear.
UnitTicks RunInTicks(const Schedule& schedule, const std::vector<StageEdges>& edges);

}  // namespace penstock
