// Simulates the combinations of a sweep on all cores.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/price/simulated.h"
#include "scenario/spelling.h"
#include "scenario/sweep/plan.h"

namespace penstock {

struct SweptSchedule {
  std::optional<Simulated> simulated;  // without lanes and stage costs, which would fill the memory
  std::string skipped;                 // why there is no such schedule; empty if there is
};

// What a sweep tells its caller while it runs, and asks.
struct SweepWatch {
  // Called about ten times a second, on the thread of the caller, with the combinations that are
  // done. May be empty.
  std::function<void(std::size_t done)> progress = {};
  const std::atomic<bool>* stop = nullptr;  // set by the caller to end the sweep; may be null
  Spelling spelling = {};                   // of reasons why combinations are skipped
};

// Simulates all combinations on all cores. Returns one element per combination, which does not
// depend on the number of threads. Errors: kInvalidArgument if every combination is skipped, or if
// a field or price has no effect on any of the schedules; kUnavailable after `stop`.
Result<std::vector<SweptSchedule>> RunSweep(const SweepPlan& plan, const SweepWatch& watch = {});

}  // namespace penstock
