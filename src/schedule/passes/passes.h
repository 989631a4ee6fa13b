// Passes: schedule -> schedule, one file each, composable. Each leaves a valid schedule valid.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// Adds SEND and RECV cells for every edge between two ranks: a SEND right behind its producer, the
// RECV as early as the peer's order and `lookahead` consumers allow. Compute order stays; a
// schedule that has SEND or RECV already is returned as it is. Requires a valid compute schedule.
Schedule AddCommunication(const Schedule& schedule);

}  // namespace penstock
