// Estimates the memory that a run needs on one host before anything is allocated.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"
#include "train/config.h"

namespace penstock {

// Bytes, as doubles: a configuration can ask for more than an integer holds.
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
  // "weights 1.20 GiB, gradients ...".
  std::string Text() const;
};

// Estimates from shapes alone: allocates nothing of the model and captures at most two layers of
// each kind of stage, whatever the model's size. Requires: ChooseSchedule has filled in the
// configuration.
Result<MemoryNeed> EstimateMemory(const TrainConfig& config, const Schedule& schedule,
                                  const HostedRanks& ranks);

// Refuses a run that needs more than `config.memory_limit` allows, before it allocates anything;
// else returns a line about its need for the log. Requires: as EstimateMemory. Errors:
// kInvalidArgument, saying what is needed, what there is and what to change.
Result<std::string> CheckMemoryNeed(const TrainConfig& config, const Schedule& schedule,
                                    const HostedRanks& ranks);

}  // namespace penstock
