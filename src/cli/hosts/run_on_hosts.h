// How a command that runs on several hosts ends: on all of them, with one message.
#pragma once

#include <functional>

#include "base/result.h"
#include "cli/hosts/hosts.h"

namespace penstock {

// Calls `run` and returns its exit code. On several hosts, an error of any host ends the command on
// all of them with the same exit code, and only one of them prints it. Returns after all hosts have
// ended the command, so that no launcher ends that host before it has printed the error.
Result<int> RunOnHosts(Hosts hosts, const std::function<Result<int>()>& run);

}  // namespace penstock
