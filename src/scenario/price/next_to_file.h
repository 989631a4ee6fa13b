// Schedules next to a file: an algorithm that is compared with a CSV, a trace or a dump has the
// file's size, and all schedules have the costs that a trace or a dump measured, unless the user
// gives others. Commands, sweeps and Python compare by this rule.
#pragma once

#include <optional>

#include "base/result.h"
#include "scenario/price/build.h"
#include "scenario/price/stage_costs.h"
#include "scenario/scenario.h"

namespace penstock {

// The file that the others are compared with: the first trace or dump, else the first CSV.
struct ReferenceFile {
  std::size_t candidate = 0;  // its index in the scenario's schedules
  PricedSchedule built;
};

// Builds the reference among the scenario's schedules, if one is a file.
Result<std::optional<ReferenceFile>> BuildReference(const Scenario& scenario,
                                                    const Purpose& purpose);

// Builds a candidate other than the reference next to it.
Result<PricedSchedule> BuildNextTo(const ReferenceFile& reference, const Scenario& scenario,
                                   const Candidate& candidate, const Purpose& purpose);

// Returns the costs of a file for stages of another placement. Stages with the same placement keep
// their costs. Otherwise each rank keeps the sum of its stages', divided evenly among the stages
// that it has now, so that a slow rank stays slow. For another number of ranks, all ranks get the
// mean.
Costs CostsNextTo(const FileCosts& file, const CostShape& shape);

}  // namespace penstock
