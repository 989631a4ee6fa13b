// Overlapped pairs: a forward and a backward that one action runs together.
#pragma once

#include "schedule/schedule.h"

namespace penstock {

// Whether any action of the schedule is a pair.
bool HasPairs(const Schedule& schedule);

}  // namespace penstock
