// The figures of plans for models as data: what `penstock plan --json` prints and what Python
// returns.
#pragma once

#include <nlohmann/json.hpp>

#include "plan/search/search.h"
#include "plan/search/training_run.h"

namespace penstock {

// Returns the part of the peak of the devices that matmuls of the precision have.
double MfuOf(const TrainingPlan& plan);

nlohmann::ordered_json FiguresOf(const TrainingPlan& plan, const TrainingRun& run = {});
// `seconds` is the time of the search.
nlohmann::ordered_json FiguresOf(const PlanAnswer& answer, double seconds,
                                 const TrainingRun& run = {});

}  // namespace penstock
