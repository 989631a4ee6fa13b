// The figures of one rank in one step, from its stamps. The rank's own thread computes them.
#pragma once

#include <cstdint>

#include "runtime/measure/trace.h"
#include "runtime/processes/collectives.h"
#include "train/log/step_part.h"

namespace penstock {

// Adds the rank's times and memory to `part`. `step` counts from the first step of the trace. For a
// schedule that flushes, follows the rules of MeasureRound; start and end are times of the leader's
// clock. Otherwise a step of a rank lasts from
// its last update of the previous step to its last update of this one, and start_ns is 0.
void AddRankStep(const Trace& trace, int rank, std::int64_t step, const ClockOffset& clock,
                 StepPart& part);

}  // namespace penstock
