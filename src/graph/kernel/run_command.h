// Runs another program for a limited time.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// The exit status of the command, -1 where a signal ended it. Its output, errors included, goes to
// the file `output_path`; it reads nothing. Behind the limit the command is killed with all of the
// processes that it started in its process group. Errors: kNotFound where it cannot be run,
// kDeadlineExceeded behind the limit.
Result<int> RunCommand(std::vector<std::string> command, const std::string& output_path,
                       std::chrono::milliseconds limit);

}  // namespace penstock
