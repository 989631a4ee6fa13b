// Orders for costs that are not all alike.
//
// A rule that starts whatever is ready makes its best order where F = I = W. With other times a
// rank starts a W just before the next I or F arrives, and the ranks that wait for it idle. The
// order made for equal times keeps its rhythm whatever the times are. So both orders are made and
// priced with the real costs, and the better one is taken.
#pragma once

#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Makes lanes for a problem's costs, within its memory limit.
using LaneMaker = std::function<std::vector<Lane>(const Problem&)>;

// Returns the lanes made for equal times, unless those made for the problem's own are shorter with
// its costs and no rank's span is longer. Never slower than the order for equal times.
std::vector<Lane> OrderForCosts(const Problem& problem, const LaneMaker& make);

// Returns the lanes squeezed to and fro (squeeze.h) while that helps, and never a slower order.
// Takes a bounded number of passes for small problems and none for large ones.
std::vector<Lane> Squeezed(const Problem& problem, std::vector<Lane> lanes);

// OrderForCosts, squeezed where times are unequal: for rules whose order at equal times is given.
std::vector<Lane> SqueezedOrderForCosts(const Problem& problem, const LaneMaker& make);

}  // namespace penstock
