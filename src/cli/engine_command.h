// A command that the program penstock-engine does.
#pragma once

#include "cli/command.h"
#include "cli/engine_table.h"

namespace penstock {

// Run() becomes penstock-engine, which lies beside this program, with the same arguments; it
// returns only where there is none.
std::unique_ptr<Command> MakeEngineCommand(const EngineEntry& entry);

}  // namespace penstock
