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
// The smaller limits do not depend on the problem's: multiples of p/128 microbatches (1/16 if p <
// 8) up to 2p, as far as ranks can hold different amounts, and beyond it multiples of p/8 (of one
// if p < 16). So with more memory the result is never worse than at one of these. Limits for which
// the lower bound (problem/lower_bound.h) shows that they cannot help are skipped. Searches share a
// bounded amount of work, except within multiples of p/8 microbatches.
// Calls `search` from several threads at once.
std::vector<Lane> BestWithinLimit(const Problem& problem, const LaneMaker& search,
                                  std::vector<std::vector<Lane>> known);

}  // namespace penstock
