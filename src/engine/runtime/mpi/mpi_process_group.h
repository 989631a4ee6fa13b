// The processes of an MPI job as the process group of a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

struct MpiJob {
  std::unique_ptr<ProcessGroup> group;  // all processes of the job
  int cores = 1;                        // this process's share of its machine's cores
};

// Initializes MPI. Collective, called once per process. Destroying the group sends all pending
// frames and waits a few seconds for the other processes to leave. If all do, it finalizes MPI.
// Otherwise the process must end soon, and the launcher ends the others. Between processes of one
// machine, Open MPI uses shared memory only, unless its variables say otherwise. Errors:
// kUnavailable if MPI cannot be called by several threads.
//
// If a call of MPI does not return for a quarter longer than ProcessTimeout(), `on_stuck` is called
// on a thread of its own and must end the process: with the reason, which is empty if the run has
// already reported its end. So it is if the processes have not found each other within six times
// ProcessTimeout().
Result<MpiJob> OpenMpiJob(std::function<void(const std::string& reason)> on_stuck);

// Returns emulated processes within this one that exchange frames through MPI, for tests.
// Initializes MPI unless this was done before. Destroying a group makes a process vanish for the
// others.
std::vector<std::unique_ptr<ProcessGroup>> MakeMpiLoopback(int processes);

}  // namespace penstock
