// Figures of an estimated step as data.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario/price/step_estimate.h"

namespace penstock {

// Adds what failures leave of a step's speed, if devices fail.
void AddCheckpoints(const StepEstimate& step, nlohmann::ordered_json& figures);

}  // namespace penstock
