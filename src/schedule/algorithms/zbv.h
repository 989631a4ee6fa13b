// The lanes of ZB-V by its rule, for those who start from them.
#pragma once

#include <vector>

#include "schedule/algorithms/search.h"
#include "schedule/schedule.h"

namespace penstock {

// Valid for any sizes; memory at most `ranks` microbatches on a rank.
std::vector<Lane> ZbvLanes(int ranks, int microbatches);
Seeds ZbvSeeds(const Problem& problem);

}  // namespace penstock
