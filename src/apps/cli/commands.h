// The commands of a program: of penstock (commands.cpp) or of penstock-engine
// (engine_commands.cpp).
#pragma once

#include <memory>
#include <vector>

#include "cli/command/command.h"

namespace penstock {

// In the order of --help.
std::vector<std::unique_ptr<Command>> Commands();

// Returns the commands that penstock-engine runs, with their options and help but without Run().
std::vector<std::unique_ptr<Command>> EngineDefinitions();

}  // namespace penstock
