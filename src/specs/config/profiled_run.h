// Which runs 'penstock profile' measures and 'penstock simulate' predicts from a profile, and what
// a profile depends on.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"

namespace penstock {

// Returns the keys of the configuration that determine what a stage with a given number of layers
// costs, with their values. Others, such as the schedule and its shape, may differ between the
// profiled run and one that is predicted from it.
std::vector<std::pair<std::string, std::string>> KeysOfProfile(const TrainConfig& config);

// Refuses runs whose steps have other parts than F, I, W, B, messages and updates. Errors:
// kInvalidArgument, with the key.
Status CheckCanProfile(const TrainConfig& config);

// Returns the pass that adds the run's updates to a schedule.
std::string UpdatePassOf(const OptimizerConfig& optimizer);

}  // namespace penstock
