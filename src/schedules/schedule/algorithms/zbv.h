// The lanes of ZB-V by its rule, as a starting point for other searches.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/patterns/period_pattern.h"
#include "schedule/search/search.h"

namespace penstock {

// Returns lanes that are valid for any sizes. Peak memory is at most `ranks` microbatches per rank.
std::vector<Lane> ZbvLanes(int ranks, int microbatches);
Seeds ZbvSeeds(const Problem& problem);

// The steady state: F0 I0 W0 F1 I1 W1 on each rank, one slot each, repeated every 6 slots.
PeriodPattern ZbvPattern(int ranks);

}  // namespace penstock
