// What zb-auto and v-auto search within one memory limit, for callers that search several limits
// themselves.
#pragma once

#include <vector>

#include "schedule/catalog.h"
#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// Returns a short schedule of one stage per rank within the problem's limit.
std::vector<Lane> SearchLinear(const Problem& problem);
// Returns a short schedule of a vee within the problem's limit. `known` is what KnownOnVee has
// returned for the same microbatches.
std::vector<Lane> SearchVee(const Problem& problem, const std::vector<std::vector<Lane>>& known);

// Return the lanes of the rule-based schedules of the placement, whatever memory they take.
std::vector<std::vector<Lane>> KnownOnLinear(const Problem& problem, const ScheduleParams& params);
std::vector<std::vector<Lane>> KnownOnVee(const Problem& problem, const ScheduleParams& params);

}  // namespace penstock
