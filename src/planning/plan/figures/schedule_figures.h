// The figures of plans for costs as data: what `penstock plan --json` prints and what Python
// returns.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "plan/schedule/plan_schedule.h"

namespace penstock {

// When the search found a better schedule.
struct Improvement {
  double seconds = 0, length = 0;
};

// Returns the distance of a length from a bound, as a part of the bound.
double GapOf(double length, double bound);

// `seconds` is the time of the search.
nlohmann::ordered_json FiguresOf(const SchedulePlan& plan,
                                 const std::vector<Improvement>& improvements, double seconds);

}  // namespace penstock
