// Drift: where a run departs from its plan. Names the action that exceeded its planned time by the
// most, and the rank that exceeds its plan by the most.
//
// Units: seconds. Only actions that occupy a rank count, because a rank that waits is not the one
// that is late.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/measure/trace.h"
#include "schedule/costs.h"

namespace penstock {

struct SlowAction {
  int rank = 0;
  std::int64_t step = 0;  // of the trace, from 0; a round may contain several
  Action action;
  double planned = 0;
  double took = 0;
};

struct RankDrift {
  double planned = 0;  // over all examined rounds
  double took = 0;
};

struct Drift {
  std::optional<SlowAction> slowest;  // exceeds its plan by the most; none if no action does
  std::vector<RankDrift> ranks;
  int straggler = -1;  // the rank that exceeds its plan by the most; -1 if none does
};

// Compares the recorded rounds from `skip` on with `planned`, which has one entry per stage, in
// seconds.
Drift FindDrift(const Trace& trace, const Costs& planned, int skip = 0);

// Formats the result: "furthest from the plan: 1B5 on rank 1 took 12.3 ms in step 17, 8.1
// ms; straggling rank: 1, busy ...". One line without a newline. `first_step` is the number of the
// trace's first step.
std::string DriftText(const Drift& drift, std::int64_t first_step = 0);

}  // namespace penstock
