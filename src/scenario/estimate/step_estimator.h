// Estimates the steps of many scenarios.
#pragma once

#include <memory>

#include "base/result.h"
#include "scenario/build/step_estimate.h"
#include "scenario/scenario.h"

namespace penstock {

// Estimates the scenario's one schedule. Reads no file twice: models, devices and schedules of
// earlier calls are kept. Threads: any number may call Estimate at a time.
class StepEstimator {
 public:
  StepEstimator();
  ~StepEstimator();
  StepEstimator(const StepEstimator&) = delete;
  StepEstimator& operator=(const StepEstimator&) = delete;

  // Requires: the scenario has one schedule and a model. Errors: those of Build.
  Result<StepEstimate> Estimate(const Scenario& scenario);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

// Does the same for one scenario.
Result<StepEstimate> EstimateStep(const Scenario& scenario);

}  // namespace penstock
