// Generates lanes for more or fewer microbatches by repeating or removing what ranks run between
// fill and drain. Idle time is in fill and drain, so an order that is good for some number of
// microbatches is good for others.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace penstock {

// On each rank, finds the run of actions nearest to `around` with one of each kind (F, I, W of each
// of its stages), and repeats it `more` times, for one more microbatch each time. If `more` is
// negative, removes the run with -more of each kind. Returns no lanes if a rank has no such run.
// Peak memory does not change, but the lanes may deadlock.
// Requires: every kind is in order of microbatch indices.
std::vector<Lane> RepeatMiddle(const std::vector<Lane>& lanes,
                               const std::vector<std::size_t>& around, int more);

}  // namespace penstock
