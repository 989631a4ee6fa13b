// The figures of a timeline, simulated or measured.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock {

// Whether the op has a duration, on its rank or on one of the rank's links: a makespan ends with
// the last of these actions. SEND and RECV have none; what reads a message waits for it, and
// what waits for it or for a REDUCE_GRAD takes time.
constexpr bool HasDuration(Op op) {
  return KeepsRank(op) || op == Op::kUnshard || op == Op::kReshard || op == Op::kReduceGrad ||
         op == Op::kOffload || op == Op::kReload;
}

// Computes makespan, bubbles and, by rank, busy time, first start and last end from the spans, as
// Simulate does. A rank is busy from an action's start to its end, so waiting must be between
// spans. Leaves memory at 0, since a timeline does not contain it.
// Requires: the timeline belongs to the schedule.
SimulationResult Summarize(const Schedule& schedule, const Timeline& timeline);

// Sets the figures that follow from those by rank: makespan, bubbles, peak memory and messages.
void FillTotals(const Schedule& schedule, SimulationResult& result);

// Returns the number of messages between ranks, in both directions, over all microbatch indices.
std::size_t CountMessages(const Schedule& schedule);

}  // namespace penstock
