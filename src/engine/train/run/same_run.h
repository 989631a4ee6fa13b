// Checks that the processes of a run were started alike.
#pragma once

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/collectives.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns an error on all processes if they run different builds of this program: they might not
// compute the same bits. Called on all processes, before anything else is exchanged.
Status CheckSameProgram(Collectives& processes);

// Returns an error on all processes if they have different configurations or schedules.
Status CheckSameRun(Collectives& processes, const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
