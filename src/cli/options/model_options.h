// The options that price a schedule by a model and the devices that train it (src/analytic):
//
//   penstock simulate 1f1b --model llama-3-70b --device h100 --nodes 8x8 --tensor 8
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analytic/request/model_request.h"
#include "base/result.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"

namespace penstock {

struct PricedModel : ModelRequest {
  void Define(CLI::App& app);
  // Whether the model determines the costs.
  bool given() const { return model.has_value(); }
  // The options that are set, as users write them.
  std::vector<std::string> Given() const;

  // The pipeline ranks that fill the cluster. Requires and errors: as Load.
  Result<int> Ranks() const;
};

// Bytes of weights, gradients and optimizer state by rank.
Result<std::vector<double>> StatesByRank(const ModelOnCluster& model, const Placement& placement,
                                         bool shards_vocabulary);

// The memory that a device has left for activations next to the largest of these states; 0 if it
// has too little for them.
double MemoryLeft(const ModelOnCluster& model, const std::vector<double>& states);

// The placement that an algorithm will have, as far as its form tells.
Placement PlacementOf(const Algorithm& algorithm, const ScheduleParams& params);

// One line: what the states take of the device's memory.
std::string DescribeModel(const ModelOnCluster& model, const std::vector<double>& states);

}  // namespace penstock
