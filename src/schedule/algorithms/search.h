// Searches for a short schedule of a problem, under its memory limit and with its costs.
//
// Candidates come from the caller's seeds, from list scheduling under several rules, and from
// sampled period patterns; the best of them are squeezed to and fro (squeeze.h). Everything is
// deterministic, and the work is bounded: linear in the actions for large problems, a fixed number
// of passes for small ones.
#pragma once

#include <vector>

#include "schedule/algorithms/problem.h"
#include "schedule/schedule.h"

namespace penstock {

// No schedule is shorter: for each rank, its first input's way in, its work, and the time that it
// must idle before its first gradient because more forwards would not fit the memory.
double LowerBound(const Problem& problem);

// The shortest schedule found; of equally short ones that with the least peak memory. Seeds are
// valid lanes of the problem; those above the memory limit are left out. Requires: split, no cuts,
// and a memory limit of at least LeastMemory().
std::vector<Lane> SearchLanes(const Problem& problem, const std::vector<std::vector<Lane>>& seeds);

// Squeezes lanes to and fro a few times and returns the shortest lanes met, the given ones
// included. Requires: they stay within the problem's memory limit.
std::vector<Lane> SqueezeToAndFro(const Problem& problem, const std::vector<Lane>& lanes);

}  // namespace penstock
