// The time after which a host that does not respond is lost.
#pragma once

#include <chrono>

#include "base/result.h"

namespace penstock {

// Returns the value of the environment variable PENSTOCK_HOST_TIMEOUT, in seconds, or 20 s. Errors:
// kInvalidArgument, with the variable's name.
Result<std::chrono::duration<double>> HostTimeout();

}  // namespace penstock
