// How a command that runs on several processes ends: on all of them, with one message.
#pragma once

#include <functional>

#include "base/result.h"
#include "cli/processes/processes.h"

namespace penstock {

// Calls `run` and returns its exit code. On several processes, an error of any process ends the
// command on all of them with the same exit code, and only one of them prints it. Returns after all
// processes have ended the command, so that no launcher ends that process before it has printed the
// error.
Result<int> RunOnProcesses(Processes processes, const std::function<Result<int>()>& run);

}  // namespace penstock
