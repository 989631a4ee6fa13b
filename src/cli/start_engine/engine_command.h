// A command that the program penstock-engine implements.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command/command.h"
#include "cli/start_engine/engine_table.h"

namespace penstock {

// Replaces this process by penstock-engine, from the same folder and with these arguments, of which
// the first is the command. Returns only if there is no such program.
Result<int> BecomeEngine(std::vector<std::string> words);

// Run() replaces this process by penstock-engine, with the same arguments.
std::unique_ptr<Command> MakeEngineCommand(const EngineEntry& entry);

}  // namespace penstock
