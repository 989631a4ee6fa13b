// Private to simulate/.
#pragma once

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

// Refuses sizes and costs that the simulator cannot run with. Errors: kInvalidArgument.
Status CheckInput(const Schedule& schedule, const Costs& costs);

}  // namespace penstock
