// Explanations of simulated schedules: why ranks are idle, and the critical path.
#pragma once

#include <vector>

#include "cli/figures/simulated.h"
#include "explain/bubbles.h"

namespace penstock {

// Requires: the schedule was simulated with its timeline. With a memory limit, forwards that do not
// fit are a cause.
std::vector<std::vector<Bubble>> BubblesOf(const Simulated& simulated);
std::vector<ActionAt> CriticalPathOf(const Simulated& simulated);

}  // namespace penstock
