// Many runs of one schedule whose actions have jitter.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct MonteCarloOptions {
  double jitter = 0;  // coefficient of variation of each action's time, at most kMostJitter
  std::uint64_t seed = 0;
  int runs = 100;
  int threads = 0;  // 0: one per core
};

// The spread of one figure over all runs. Percentiles are figures of runs: the smallest that half
// or 95% of the runs do not exceed (nearest rank).
struct Spread {
  double mean = 0, median = 0, p95 = 0;
};

struct MonteCarloResult {
  Spread makespan, bubble, span_bubble;  // as in SimulationResult
};

// Simulates the schedule `runs` times with the same order of actions. The result does not depend on
// the number of threads. Requires: 0 <= jitter <= kMostJitter, runs >= 1. Errors: as Simulate.
Result<MonteCarloResult> SimulateRuns(const Schedule& schedule, const Costs& costs,
                                      const MonteCarloOptions& options);

}  // namespace penstock
