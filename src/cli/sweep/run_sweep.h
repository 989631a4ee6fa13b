// Simulates the combinations of a sweep on all cores.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/figures/simulated.h"
#include "cli/sweep/plan.h"

namespace penstock {

struct SweptSchedule {
  std::optional<Simulated> simulated;  // without lanes and stage costs, which would fill the memory
  std::string skipped;                 // why there is no such schedule; empty if there is
};

// Returns one element per combination, whatever the number of threads. Shows its progress if
// standard error is a terminal. Ctrl-C ends it. Errors: kInvalidArgument if every combination is
// skipped, or if an option or price has no effect on any of the schedules; kUnavailable after
// Ctrl-C.
Result<std::vector<SweptSchedule>> RunSweep(const SweepPlan& plan);

}  // namespace penstock
