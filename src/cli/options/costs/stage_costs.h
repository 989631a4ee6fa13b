// Whether the costs that a user gives by stage fit the stages of an algorithm.
#pragma once

#include "base/result.h"
#include "schedule/catalog.h"

namespace penstock {

// Refuses costs in `asked` of another number of stages than the algorithm has. The catalog refuses
// them too, but does not know the key for costs that fit any number.
Status CheckStageCosts(const Algorithm& algorithm, ScheduleParams asked);

}  // namespace penstock
