// Runs another program with a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Returns the exit status of the command, or -1 if a signal ended it. Its standard output and error
// go to the file `output_path`; its standard input is empty. After the limit the command is killed
// with all processes of its process group. Errors: kNotFound if it cannot be run, kDeadlineExceeded
// after the limit.
Result<int> RunCommand(std::vector<std::string> command, const std::string& output_path,
                       std::chrono::milliseconds limit);

}  // namespace penstock
