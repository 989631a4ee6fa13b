// How passes that save memory find how much of it to save. Private to passes/.
#pragma once

#include <functional>
#include <vector>

#include "schedule/passes/passes.h"

namespace penstock {

// What a rank's memory may reach before the pass acts on the next row: a low level acts on many.
using Levels = std::vector<double>;  // by rank
inline constexpr double kEveryRow = -1;

// The schedule that acts on as few rows as keeps each rank's peak at its target, found by bisection
// of each rank's level. `build` makes the schedule for given levels; `before` are the peaks without
// the pass. Errors: kInfeasible where a rank stays above its target with every row.
Result<Schedule> SearchLevels(const std::function<Result<Schedule>(const Levels&)>& build,
                              const Pricer& price, const std::vector<double>& before,
                              const std::vector<double>& targets);

}  // namespace penstock
