// Several processes of a run, emulated within one. Each has a thread that delivers its frames.
// Every frame is serialized to bytes, as between processes.
#pragma once

#include <memory>
#include <vector>

#include "runtime/processes/process_group.h"

namespace penstock {

// Returns the groups of all processes, by process. Destroying a group makes a process vanish for
// the others. No other thread may use the group at that time.
std::vector<std::unique_ptr<ProcessGroup>> MakeLocalProcesses(int processes);

}  // namespace penstock
