// The program penstock-engine, which has the commands that need libtorch.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Replaces this process by penstock-engine, from the same folder and with these arguments; the
// first is the command. Returns only if there is no such program.
Result<int> BecomeEngine(std::vector<std::string> words);

}  // namespace penstock
