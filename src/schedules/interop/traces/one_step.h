// One step of a recorded run, as lanes with times. Private to interop/traces.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "interop/traces/rank_actions.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct OneStep {
  Schedule schedule;
  Timeline timeline;  // in microseconds, as the events
  // By how many microseconds each rank's clock was set forward; empty if clocks agree.
  std::vector<double> shifts = {};
  std::string reading = {};  // RecordedRun::reading
};

// Returns the actions of the step. Numbers those without a stage or microbatch (trace_rule.h).
// Where events do not name stages and a rank has several, the placement is looped or a zigzag,
// whichever agrees with the times. Errors: kInvalidArgument if the step is incomplete, a stage runs
// on two ranks, or actions of a rank overlap.
Result<OneStep> StepOf(const std::vector<RankActions>& ranks, int step, std::optional<int> chunks);

}  // namespace penstock
