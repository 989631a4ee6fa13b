// A command that the program penstock-engine implements.
#pragma once

#include "cli/command.h"
#include "cli/engine_table.h"

namespace penstock {

// Run() replaces this process by penstock-engine, from the same folder and with the same arguments.
// It returns only if there is no such program.
std::unique_ptr<Command> MakeEngineCommand(const EngineEntry& entry);

}  // namespace penstock
