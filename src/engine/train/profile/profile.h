// Measures what the stages of a model cost on this machine. No torch here.
#pragma once

#include <cstdio>

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/cost_files/stage_profile.h"

namespace penstock {

struct ProfileOptions {
  std::FILE* log = stdout;
  int cores = 0;   // that ranks may use; 0: all cores of the machine
  int rounds = 5;  // in which all pipelines run one after the other
  int steps = 5;   // of each pipeline in a round
};

// Runs small pipelines of the configured model, whose stages have one and several layers, with B
// and with I and W. They have the configured number of ranks, but at most one per core, so that
// each rank computes next to as many others as in training. Returns the medians of all rounds, by
// depth, without the costs between threads and processes. Threads: sets torch's number of threads;
// no run of this process may train meanwhile. Errors: kInvalidArgument for configurations whose
// layers differ or whose stages exchange more than messages; as Train's start and steps.
Result<StageProfile> ProfileStages(const TrainConfig& config, const ProfileOptions& options);

}  // namespace penstock
