// The lanes of ZB-V by its rule, for those who start from them.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/patterns/period_pattern.h"
#include "schedule/search/search.h"

namespace penstock {

// Valid for any sizes; memory at most `ranks` microbatches on a rank.
std::vector<Lane> ZbvLanes(int ranks, int microbatches);
Seeds ZbvSeeds(const Problem& problem);

// Its steady state: on each rank F0 I0 W0 F1 I1 W1, one slot each, repeated every 6 slots.
PeriodPattern ZbvPattern(int ranks);

}  // namespace penstock
