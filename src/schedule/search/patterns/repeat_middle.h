// Makes lanes of more or fewer microbatches, by repeating or leaving out what ranks do between fill
// and drain: idle time lies in those, so what is good for some microbatches is for others.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/schedule.h"

namespace penstock {

// On each rank, the run of actions nearest to `around` that has one of each kind (F, I, W of each
// of its stages) is repeated `more` times, for one microbatch more each time; where `more` is below
// 0, the run that has -more of each kind is left out. Empty where a rank has no such run. Memory
// stays what it was; but the lanes may wait for each other. Requires: every kind goes in the order
// of rows.
std::vector<Lane> RepeatMiddle(const std::vector<Lane>& lanes,
                               const std::vector<std::size_t>& around, int more);

}  // namespace penstock
