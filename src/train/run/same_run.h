// Checks that the hosts of a run were started alike.
#pragma once

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/hosts/collectives.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns an error on all hosts if they run different builds of this program: they might not
// compute the same bits. Called on all hosts, before anything else is exchanged.
Status CheckSameProgram(Collectives& hosts);

// Returns an error on all hosts if they have different configurations or schedules.
Status CheckSameRun(Collectives& hosts, const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
