// The training step of a scenario, for callers that price many of them.
#pragma once

#include "base/result.h"
#include "scenario/price/step_estimate.h"
#include "scenario/scenario.h"

namespace penstock {

// Estimates the step of the scenario's one schedule. Files of models, devices and machines are read
// once, however many scenarios name them. Threads: any number may call it at a time. Errors:
// kInvalidArgument without a model or for another number of schedules, and as Build.
Result<StepEstimate> EstimateStep(const Scenario& scenario);

}  // namespace penstock
