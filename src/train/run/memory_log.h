// The log's lines about the memory of weights, gradients and optimizer state.
#pragma once

#include <cstdio>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/collectives.h"
#include "schedule/schedule.h"
#include "train/run/pipeline.h"

namespace penstock {

// Logs the most bytes that each rank has held, and the predicted ones, if replicas share state.
// Called on all processes, while no rank runs; the leader logs.
Status LogMemory(Collectives& processes, const TrainConfig& config, const Schedule& schedule,
                 const Pipeline& pipeline, std::FILE* log);

}  // namespace penstock
