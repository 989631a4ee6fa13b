// A group whose ranks are threads of one process. They exchange data through memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collective/exchanger.h"

namespace penstock {

// Returns the ends of a group, by rank. They may outlive each other. With a link speed, data also
// takes the time of emulated links: a wait sleeps until the pieces for its rank have arrived.
// Waiting for an arrival uses no core. Requires: ranks >= 1.
std::vector<std::unique_ptr<RankGroup>> MakeLocalGroup(int ranks,
                                                       const RankGroupOptions& options = {},
                                                       std::optional<LinkSpeed> link = {});

}  // namespace penstock
