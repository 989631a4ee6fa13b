// The processes of a training run, started by an MPI launcher, or this process alone.
#pragma once

#include <memory>

#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

struct Processes {
  std::unique_ptr<ProcessGroup> group;  // null if this process runs all ranks
  int cores = 0;                        // that this process may use; 0: all of the machine's
};

// Connects the processes of the job. Called once. Errors: kUnavailable if the MPI library lacks
// what it needs.
Result<Processes> OpenProcesses();

}  // namespace penstock
