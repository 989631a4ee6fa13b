// The lines about each rank that a run logs: where it runs, and the memory that it has used.
#pragma once

#include "base/result.h"
#include "train/run/pipeline.h"
#include "train/run/run_context.h"

namespace penstock {

// Logs the coordinates and the process of each rank of several processes or replicas. Called on all
// processes; the leader logs. Errors: the reason of an abort of the group.
Status LogMesh(const RunContext& run);

// Logs the most bytes of weights, gradients and optimizer state that each rank has held, and the
// predicted ones, if replicas share state. Called on all processes, while no rank runs; the leader
// logs.
Status LogMemory(const RunContext& run, const Pipeline& pipeline);

// Logs the most bytes that each process has allocated on its device, and what was recorded there.
// Called on all processes, while no rank runs; the leader logs. Errors: as LogMesh.
Status LogDevice(const RunContext& run, const Pipeline& pipeline);

}  // namespace penstock
