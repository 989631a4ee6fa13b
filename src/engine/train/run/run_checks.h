// Checks of combinations of configuration values that are valid individually.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"

namespace penstock {

// Returns a line for the log for each value that is probably a mistake. Errors: kInvalidArgument
// for a key that has no effect.
Result<std::vector<std::string>> CheckRun(const TrainConfig& config);

}  // namespace penstock
