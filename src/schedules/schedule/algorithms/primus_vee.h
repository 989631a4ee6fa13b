// V-Half and V-Min in the order of AMD Primus's simulator, so that its configurations reproduce its
// makespans. The catalog's v-half and v-min squeeze the same blocks with their real costs, and are
// at least as fast.
#pragma once

#include "schedule/schedule.h"

namespace penstock {

enum class PrimusVee { kHalf, kMin };

// Compute only, on Placement::Vee(ranks). Requires: ranks and microbatches are at least 1.
Schedule GeneratePrimusVee(PrimusVee kind, int ranks, int microbatches);

}  // namespace penstock
