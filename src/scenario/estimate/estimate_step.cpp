#include "scenario/estimate/estimate_step.h"

#include "scenario/price/build.h"
#include "scenario/price/simulated.h"

namespace penstock {

Result<StepEstimate> EstimateStep(const Scenario& scenario) {
  if (!scenario.prices_model()) {
    return InvalidParameter("model", ": is missing; a step has a time only with a model");
  }
  if (scenario.schedules.size() != 1) {
    return InvalidParameter("schedule", ": one is needed, not {}", scenario.schedules.size());
  }
  PENSTOCK_TRY(PricedSchedule chosen, BuildOne(scenario, scenario.schedules.front(), {}));
  PENSTOCK_TRY(const Simulated simulated, SimulateOne(std::move(chosen), false));
  return *simulated.step;
}

}  // namespace penstock
