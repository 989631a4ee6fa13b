// A self-contained page of a sweep: charts of the figures over the swept values, and the table.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/sweep/plan.h"
#include "scenario/sweep/run_sweep.h"

namespace penstock {

// The charts have a line per schedule over the key with the most values, the first of equals. There
// is one of makespan, bubble and peak memory each for every combination of the other keys' values.
std::string SweepPage(const SweepPlan& plan, const std::vector<SweptSchedule>& swept);

// Errors: kUnavailable if the file cannot be written.
Status WriteSweepPage(const SweepPlan& plan, const std::vector<SweptSchedule>& swept,
                      const std::string& path);

}  // namespace penstock
