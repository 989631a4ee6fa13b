// The figures of any timeline, simulated or measured.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock {

// Makespan, bubbles and, by rank, busy time, first start and last end: as Simulate gives them, but
// read off the spans. A rank is busy from an action's start to its end: waiting must lie between
// spans. Memory is left at 0: a timeline does not say it. Requires: the timeline is the schedule's.
SimulationResult Summarize(const Schedule& schedule, const Timeline& timeline);

// Sets what follows from the figures by rank: makespan, bubbles, peak memory and messages.
void FillTotals(const Schedule& schedule, SimulationResult& result);

// Edges between ranks, both ways, over all rows.
std::size_t CountMessages(const Schedule& schedule);

}  // namespace penstock
