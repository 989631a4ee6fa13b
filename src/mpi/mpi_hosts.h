// The processes of an MPI job as the hosts of a run.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/host_group.h"

namespace penstock {

struct MpiJob {
  std::unique_ptr<HostGroup> group;  // all processes of the job
  int cores = 1;                     // this process's share of its machine's cores
};

// Initializes MPI. Collective, called once per process. Destroying the group sends all pending
// frames and waits a few seconds for the other processes to leave. If all do, it finalizes MPI.
// Otherwise the process must end soon, and the launcher ends the others. Errors: kUnavailable if
// MPI cannot be called by several threads.
Result<MpiJob> OpenMpiJob();

// Returns hosts within this process that exchange frames through MPI, for tests. Initializes MPI
// unless this was done before. Destroying a group makes its host vanish for the others.
std::vector<std::unique_ptr<HostGroup>> MakeMpiLoopback(int hosts);

}  // namespace penstock
