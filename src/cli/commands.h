// The table of a program's commands: penstock's (commands.cpp) or penstock-engine's
// (engine_commands.cpp).
#pragma once

#include <memory>
#include <vector>

#include "cli/command.h"

namespace penstock {

// In the order of --help.
std::vector<std::unique_ptr<Command>> Commands();

}  // namespace penstock
