// What is said of a model that no plan fits into the memory of its devices.
#pragma once

#include "base/result.h"
#include "plan/search/search.h"

namespace penstock {

// Returns the error: by how much the plan that needs least is over the limit, on which pipeline
// rank and from what, and which changes of the question fit. Each change is priced. `limit` is in
// bytes of a device.
Error MisfitOf(const PlanQuestion& question, double limit, const TrainingPlan& least);

}  // namespace penstock
