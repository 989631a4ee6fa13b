// Checks of combinations of configuration values that are valid individually.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "train/config.h"

namespace penstock {

// Returns one line for the log for each thing that is likely a mistake. Errors:
// kInvalidArgument for a key that would have no effect.
Result<std::vector<std::string>> CheckRun(const TrainConfig& config);

}  // namespace penstock
