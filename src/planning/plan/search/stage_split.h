// Which layers each stage gets.
#pragma once

#include <functional>
#include <vector>

#include "plan/search/training_plan.h"
#include "schedule/placement.h"

namespace penstock {

// Returns how many consecutive layers each stage gets, at least one, so that the longest stage is
// as short as possible (dynamic programming, as in PipeDream, Narayanan et al. 2019, section 3.1).
// A layer on a stage takes its time times the stage's factor. Requires: as many times as stages, or
// more.
std::vector<int> ShortestBottleneck(const std::vector<double>& layer_times,
                                    const std::vector<double>& stage_factors);

// Returns how many consecutive layers each stage of a chain gets so that the busiest rank has
// little to do: from the shortest bottleneck, by moves of one layer away from that rank. Optimal
// for ranks with one stage. `rank_times` are relative times of the ranks; empty: all are alike.
// Requires: as above.
std::vector<int> BalancedLayers(const std::vector<double>& layer_times, const Placement& placement,
                                const std::vector<double>& rank_times = {});

// Returns the plan with the layers of its stages moved so that its step is shorter, or the plan
// itself, by moves of one layer away from busy ranks or to idle ones, each simulated. Layers of a
// layout that the user fixed stay. `fits` says whether a plan's memory does. `priced` counts
// simulations.
TrainingPlan WithBestSplit(const TrainingPlan& plan,
                           const std::function<bool(const TrainingPlan&)>& fits,
                           std::size_t& priced);

}  // namespace penstock
