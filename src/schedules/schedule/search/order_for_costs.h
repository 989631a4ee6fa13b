// Orders for costs that are not all alike.
//
// A rule that starts whatever is ready gives its best order if F = I = W. With other times a rank
// starts a W just before the next I or F arrives, and the ranks that wait for it idle. The order
// for equal times keeps its rhythm whatever the times are. So both orders are generated and priced
// with the real costs, and the better one is used.
#pragma once

#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Generates lanes for a problem's costs, within its memory limit.
using LaneMaker = std::function<std::vector<Lane>(const Problem&)>;

// Returns the lanes generated for equal times, unless those generated for the problem's own times
// are shorter with its costs and no rank's span is longer. Never slower than the order for equal
// times.
std::vector<Lane> OrderForCosts(const Problem& problem, const LaneMaker& make);

// Returns the lanes, squeezed alternately from both ends (squeeze.h) while that helps. Never
// returns a slower order. Takes a bounded number of passes for small problems and none for large
// ones.
std::vector<Lane> Squeezed(const Problem& problem, std::vector<Lane> lanes);

// OrderForCosts, then Squeezed if times are unequal: for rules with a known order for equal times.
std::vector<Lane> SqueezedOrderForCosts(const Problem& problem, const LaneMaker& make);

}  // namespace penstock
