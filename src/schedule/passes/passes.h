// Passes: schedule -> schedule, one file each, composable. Each leaves a valid schedule valid.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// Adds SEND and RECV cells for every edge between two ranks: a SEND before the next compute action
// of its producer's rank, its RECV at the place in the consumer's lane that one global order of all
// messages gives it. So no transport deadlocks on them (see communication.cpp). Compute order
// stays; a schedule that has SEND or RECV already is returned as it is.
// Requires: the schedule is valid; throws InternalError where it deadlocks.
Schedule AddCommunication(const Schedule& schedule);

}  // namespace penstock
