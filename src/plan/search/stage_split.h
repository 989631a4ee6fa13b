// Which layers each stage gets.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "plan/search/training_plan.h"

namespace penstock {

// Returns how many consecutive layers each stage gets, at least one, so that the longest stage is
// as short as possible (dynamic programming, as in PipeDream, Narayanan et al. 2019, section 3.1).
// Requires: as many times as stages, or more.
std::vector<int> ShortestBottleneck(const std::vector<double>& layer_times, int stages);

// Returns the plan with the layers of its stages moved so that its step is shorter, or the plan
// itself: from the shortest bottleneck and from the plan's own, by moves of one layer between
// neighbors. Layers of a plan with a layout of its own stay. `fits` says whether a plan's memory
// does.
TrainingPlan WithBestSplit(const TrainingPlan& plan,
                           const std::function<bool(const TrainingPlan&)>& fits);

}  // namespace penstock
