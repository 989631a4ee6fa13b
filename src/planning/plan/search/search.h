// Searches for the fastest ways to train a model on a cluster: over divisions of the model and the
// batch, schedules, recomputation and the layers of stages.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/search/framework.h"
#include "plan/search/training_plan.h"

namespace penstock {

struct PlanQuestion {
  Scenario scenario;              // the model and its devices; dimensions that it has are fixed
  std::int64_t global_batch = 0;  // samples of a step, of all replicas
  // Bytes of a device that a plan may need. 0: 95% of its memory, since drivers and allocators
  // need more than is modelled.
  double memory_limit = 0;
  std::vector<int> chunks;                 // stages per rank that are allowed; empty: 1 to 8
  std::vector<std::string> schedules;      // that are allowed; empty: all that keep weights in step
  std::vector<std::string> excluded;       // schedules
  std::vector<Precision> precisions = {};  // that are allowed; empty: the scenario's
  Framework framework = {};                // that is to run the plan
  std::string advice = {};                 // follows the reason if the framework runs no division
  std::function<void(double done)> progress = [](double) {};  // the part of the work, 0 to 1
  std::function<bool()> stop = [] { return false; };          // ends with the best so far
};

struct PlanAnswer {
  // The plans that none beats in both time and memory, the fastest first, and the best of each
  // division that lost.
  std::vector<TrainingPlan> front, runners_up;
  std::vector<TrainingPlan> best_of_divisions;  // that are the fastest
  std::size_t divisions = 0;                    // that are legal
  std::size_t searched = 0;                     // configurations that were simulated
  double lower_bound = 0;                       // of every legal division, in seconds of a step
  double memory_limit = 0;                      // that held
  bool stopped = false;

  const TrainingPlan& best() const { return front.front(); }
};

// If nothing fits and the framework can, the plans have moments in 8 bits or their states in the
// memory of the host. The answer does not depend on the number of threads. Errors: kInvalidArgument
// about a field, and if nothing fits into the memory: then by how much, from what, and which change
// fits (misfit.h).
Result<PlanAnswer> SearchPlans(const PlanQuestion& question);

// Returns the question with moments in 8 bits, and with all states in the memory of the host, as
// far as it leaves them open.
std::vector<Scenario> StateSavings(const Scenario& scenario);

// Returns the plan that needs least memory, among the divisions with the lowest bounds. Empty if
// none can be priced.
std::optional<TrainingPlan> LeastMemoryPlan(const PlanQuestion& question);

}  // namespace penstock
