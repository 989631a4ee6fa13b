// V-Half and V-Min's patterns and their memory, for those who start from them.
#pragma once

#include "schedule/search/search.h"

namespace penstock {

Seeds VHalfSeeds(const Problem& problem);
Seeds VMinSeeds(const Problem& problem);
// In microbatches.
int VHalfMemory(int ranks);
int VMinMemory(int ranks);

}  // namespace penstock
