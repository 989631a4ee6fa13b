// What to try next with simulated schedules.
#pragma once

#include <optional>
#include <vector>

#include "report/report.h"
#include "scenario/price/simulated.h"

namespace penstock {

// Returns the schedule of the catalog that takes the least time with the scenario's costs and no
// more memory than the best of `all` or than the limit, or what more microbatches would save, each
// simulated and with its command. Nothing where neither is shorter, where a command cannot give all
// costs, and for schedules that are too large to try others quickly. Requires: `all` are simulated
// schedules of the scenario, in its order.
std::optional<Advice> AdviceOf(const Scenario& scenario, const std::vector<Simulated>& all);

}  // namespace penstock
