// Searches for a short schedule of a problem, under its memory limit and with its costs.
//
// Candidates come from the caller's seeds, from list scheduling under several rules, and from
// sampled period patterns; those that come near the best are squeezed to and fro (squeeze.h). With
// many microbatches, most of the search is done with few, and their middle repeated. Everything is
// deterministic, and the work is bounded: linear in the actions for large problems, a fixed number
// of passes for small ones.
#pragma once

#include <functional>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Schedules to start from, and what makes them: for the problem, or for it with fewer rows.
using Seeds = std::vector<std::vector<Lane>>;
using SeedMaker = std::function<Seeds(const Problem&)>;

// The shortest schedule found; of equally short ones that with the least peak memory. Seeds are
// valid lanes of the problem; those above the memory limit are left out. Requires: split, no
// slices, and a memory limit of at least LeastMemory(). With less effort than 1, so much of the
// work.
std::vector<Lane> SearchLanes(const Problem& problem, const SeedMaker& seeds, double effort = 1);

// With a third of the effort, for seeds that are known to be good for their memory: a limit in
// microbatches, each chunk counted as its equal share whatever it takes.
std::vector<Lane> SearchNear(const SeedMaker& seeds, const Problem& problem, double microbatches);

}  // namespace penstock
