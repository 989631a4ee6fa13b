#include "scenario/estimate/step_estimator.h"

#include <map>
#include <string>

#include "base/mutex.h"
#include "scenario/build/build.h"
#include "scenario/build/simulated.h"

namespace penstock {

// What several scenarios of a table share.
struct StepEstimator::Kept {
  Mutex mutex;
  std::map<std::string, ModelShape, std::less<>> shapes PENSTOCK_GUARDED_BY(mutex);
};

StepEstimator::StepEstimator() : kept_(std::make_unique<Kept>()) {}
StepEstimator::~StepEstimator() = default;

Result<StepEstimate> StepEstimator::Estimate(const Scenario& scenario) {
  if (!scenario.prices_model()) {
    return InvalidParameter("model", ": a step has a time only with a model; give one");
  }
  if (scenario.schedules.size() != 1) {
    return InvalidParameter("schedule", ": one is needed, not {}", scenario.schedules.size());
  }
  const Candidate& candidate = scenario.schedules.front();
  PENSTOCK_TRY(const Scenario own, ScenarioOf(scenario, candidate));
  PENSTOCK_TRY(PricedSchedule chosen, BuildOne(own, candidate, {}));
  PENSTOCK_TRY(const Simulated simulated, SimulateOne(std::move(chosen), false));
  return *simulated.step;
}

Result<StepEstimate> EstimateStep(const Scenario& scenario) {
  return StepEstimator().Estimate(scenario);
}

}  // namespace penstock
