// Random valid schedules: any placement, any order that can be met, split and whole backwards,
// pairs, and communication cells anywhere they may stand.
#pragma once

#include <random>

#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct RandomShape {
  Placement placement;
  int microbatches = 1;
  int slices = 1;
  bool pairs = false;          // overlap some forwards with backwards
  bool communication = false;  // write SEND and RECV cells
};

// Rows are filled by drawing, again and again, one of all actions that may run next; so an order
// that runs to its end exists by construction.
Schedule RandomSchedule(const RandomShape& shape, std::mt19937& random);

// Any stages on any ranks, each rank with one at least; one or two chains.
Placement RandomPlacement(std::mt19937& random);

// Times that are not round, some of them 0; one amount of activation for all stages.
Costs RandomCosts(const Placement& placement, std::mt19937& random);

}  // namespace penstock
