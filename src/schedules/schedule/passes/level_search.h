// Finds how much memory a pass has to save. Private to passes/.
#pragma once

#include <functional>
#include <vector>

#include "schedule/passes/passes.h"

namespace penstock {

// The memory of a rank above which the pass acts on the next microbatch: a low level acts on many.
using Levels = std::vector<double>;  // by rank
inline constexpr double kEveryMicrobatch = -1;

// Returns the schedule that acts on as few microbatches as keep each rank's peak at its target,
// found by bisection of each rank's level. `build` builds the schedule for given levels; `before`
// are the peaks without the pass. Errors: kInfeasible if a rank stays above its target even if the
// pass acts on every microbatch.
Result<Schedule> SearchLevels(const std::function<Result<Schedule>(const Levels&)>& build,
                              const Pricer& price, const std::vector<double>& before,
                              const std::vector<double>& targets);

}  // namespace penstock
