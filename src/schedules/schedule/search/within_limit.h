// Searches that neither a smaller memory limit nor a known schedule beats.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/order_for_costs.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns the best of what `search` finds within the problem's limit, of what it finds within
// smaller limits, and of the `known` lanes whose memory fits: the best is the one with the shortest
// makespan or span, as the objective says; among equal ones the one with the shorter other, then
// the one with the lowest peak memory. `known` lanes may have whole backwards.
//
// The smaller limits are all multiples of p/8 microbatches, or of one if p < 16, on p ranks. So
// with more memory the result is never worse than at one of these. Limits for which the lower bound
// (problem/lower_bound.h) shows that they cannot help are skipped.
// Calls `search` from several threads at once.
std::vector<Lane> BestWithinLimit(const Problem& problem, const LaneMaker& search,
                                  std::vector<std::vector<Lane>> known);

}  // namespace penstock
