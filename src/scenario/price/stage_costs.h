// What the stages of a schedule cost in a scenario.
//
// Errors: kInvalidArgument about a field of the scenario.
#pragma once

#include <vector>

#include "base/result.h"
#include "scenario/price/passes.h"
#include "scenario/scenario.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

// The size of a schedule that costs depend on.
struct CostShape {
  int stages = 1;    // of one chain
  int replicas = 1;  // chains
  int slices = 1;    // of a microbatch
  int ranks = 1;
  // The rank of each stage of the first chain, as far as it is known before there is a schedule.
  std::vector<int> rank_of_stage = {};
  // The ranks of all stages, chain by chain, where there is a placement.
  std::vector<int> ranks_of_chains = {};
};

// Returns the shape of a placement's costs.
CostShape ShapeOf(const Placement& placement, int slices);

// Returns the costs of a placement's stages, before passes. `params` are the scenario's.
Result<Costs> CostsOf(const Scenario& scenario, const ScheduleParams& params,
                      const Placement& placement, int slices);

// Returns costs that fit any number of stages: the costs of layers, or of a model. Requires:
// scenario.costs_by_layer().
Result<Costs> CostsByLayer(const Scenario& scenario, const ScheduleParams& params,
                           const CostShape& shape);

// Whether ranks take longer than their stages cost.
bool ChangesSpeed(const Scenario& scenario);

// Adds launches and the factors of slow ranks, and sets which ranks share links.
Status SetSpeed(const Scenario& scenario, const Placement& placement, Costs& costs);
// Sets how messages are sent and over which links.
Status SetTransfers(const Scenario& scenario, Costs& costs);
// Scales the costs of each microbatch by its length.
Status SetLengths(const Scenario& scenario, const Schedule& schedule, Costs& costs);

// What times of collectives depend on apart from the costs.
struct CollectiveSizes {
  double activation = 1;  // bytes of a unit of memory
  bool in_bytes = false;
  int chunks = 1;
};
// Sets the times of collectives from their sizes, if the scenario describes collectives.
Status SetCollectives(const Scenario& scenario, const PassList& passes, CollectiveSizes sizes,
                      Costs& costs);

}  // namespace penstock
