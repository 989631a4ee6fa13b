// A model and its devices in a scenario: ranks, states and what they leave of a device's memory.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cost_model/request/model_request.h"
#include "schedule/catalog.h"
#include "schedule/placement.h"

namespace penstock {

// Returns the bytes of weights, gradients and optimizer state by rank.
Result<std::vector<double>> StatesByRank(const ModelOnCluster& model, const Placement& placement,
                                         bool shards_vocabulary);

// Returns the memory that every rank has left at least for activations next to its states; 0 if one
// has too little for them. Requires: states is not empty.
double MemoryLeft(const ModelOnCluster& model, const std::vector<double>& states);

// Returns the placement that an algorithm will have, as far as its form tells.
Placement PlacementOf(const Algorithm& algorithm, const ScheduleParams& params);

// Returns one line: what the states take of the device's memory.
std::string DescribeModel(const ModelOnCluster& model, const std::vector<double>& states);

}  // namespace penstock
