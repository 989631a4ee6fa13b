// Searches for a short schedule of a problem, within its memory limit and with its costs.
//
// Candidates come from the caller's seeds, from list scheduling with several rules, and from
// sampled period patterns. Those near the best are squeezed alternately from both ends (squeeze.h).
// With many microbatches, most of the search uses fewer, and repeats the middle of what it finds.
// Everything is deterministic, and the work is bounded: linear in the actions for large problems, a
// fixed number of passes for small ones.
#pragma once

#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Schedules to start from, and the function that generates them for the problem, or for it with
// fewer microbatches.
using Seeds = std::vector<std::vector<Lane>>;
using SeedMaker = std::function<Seeds(const Problem&)>;

// Returns the schedule found with the shortest makespan or span, as the problem's objective says;
// among equal ones the one with the shorter other, then the one with the lowest peak memory.
// Seeds are valid lanes of the problem; those above the memory limit are skipped. `effort` is the
// fraction of the amount of work that the problem asks for.
// Requires: split, no slices, and a memory limit of at least LeastMemory().
std::vector<Lane> SearchLanes(const Problem& problem, const SeedMaker& seeds, double effort = 1);

// The work of SearchLanes with full effort, in actions run.
double WorkOf(const Problem& problem);

// SearchLanes with a third of the effort, for seeds that are known to be good for their memory. The
// limit is in microbatches; each chunk counts as an equal share, whatever memory it takes.
std::vector<Lane> SearchNear(const SeedMaker& seeds, const Problem& problem, double microbatches);

}  // namespace penstock
