// Estimates the memory that a run needs on one process before anything is allocated.
#pragma once

#include <string>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/schedule.h"

namespace penstock {

// In bytes. The sizes of a configuration may exceed the range of an integer.
struct MemoryNeed {
  double weights = 0;  // including versions and copies
  double gradients = 0;
  double optimizer = 0;
  double checkpoint = 0;   // the copy for writing or reading a checkpoint
  double activations = 0;  // each rank's peak, and the workspace of its largest action
  double batches = 0;

  double total() const {
    return weights + gradients + optimizer + checkpoint + activations + batches;
  }
  // Formats the parts: "weights 1.20 GiB, gradients ...".
  std::string Text() const;
};

// Estimates the need of this process's ranks of the mesh of all planes (MeshOfPlanes) from shapes
// only. Allocates no weights, and captures at most two layers of
// each kind of stage for a model of any size. Requires: ChooseSchedule has filled in the
// configuration.
Result<MemoryNeed> EstimateMemory(const TrainConfig& config, const Schedule& schedule,
                                  const LocalRanks& ranks);

// Returns a line for the log about the run's need. Requires: as EstimateMemory. Errors:
// kInvalidArgument if the need exceeds `config.max_memory`, with both amounts and what to change.
Result<std::string> CheckMemoryNeed(const TrainConfig& config, const Schedule& schedule,
                                    const LocalRanks& ranks);

}  // namespace penstock
