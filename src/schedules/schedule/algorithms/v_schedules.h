// The patterns of V-Half and V-Min and their memory, as starting points for other searches.
#pragma once

#include "schedule/search/search.h"

namespace penstock {

Seeds VHalfSeeds(const Problem& problem);
Seeds VMinSeeds(const Problem& problem);
// In microbatches.
int VHalfMemory(int ranks);
int VMinMemory(int ranks);

}  // namespace penstock
