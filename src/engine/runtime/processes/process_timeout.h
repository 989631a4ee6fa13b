// The time after which a process that does not respond is lost.
#pragma once

#include <chrono>

#include "base/result.h"

namespace penstock {

// Returns the value of the environment variable PENSTOCK_PROCESS_TIMEOUT or, if it is
// not set, of its former name PENSTOCK_HOST_TIMEOUT, in seconds; or 20 s. Errors:
// kInvalidArgument, with the variable's name.
Result<std::chrono::duration<double>> ProcessTimeout();

}  // namespace penstock
