// Drift: where a run departs from its plan, by name: the action that took longer than planned, and
// the rank that fell behind.
//
// Units: seconds. Only what occupies a rank counts, not waits: who waits is not who is late.
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
  std::int64_t step = 0;  // of the trace, from 0: a round may hold several
  Action action;
  double planned = 0;
  double took = 0;
};

struct RankDrift {
  double planned = 0;  // over all rounds looked at
  double took = 0;
};

struct Drift {
  std::optional<SlowAction> slowest;  // furthest above its plan; none where every action kept to it
  std::vector<RankDrift> ranks;
  int straggler = -1;  // the rank furthest above its plan; -1 where every rank kept to it
};

// Compares the kept rounds from `skip` on with `planned`, one entry a stage, in seconds.
Drift FindDrift(const Trace& trace, const Costs& planned, int skip = 0);

// "furthest from the plan: 1B5 on rank 1 took 12.3 ms in step 17, 8.1 ms planned; straggling rank:
// 1, busy ...". One line without its end; `first_step` is the number of the trace's first.
std::string DriftText(const Drift& drift, std::int64_t first_step = 0);

}  // namespace penstock
