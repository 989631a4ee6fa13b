// Manual pages in roff with the macros of man(7), from the tables of --help.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command/command.h"

namespace penstock {

// penstock(1): the program and its commands.
std::string ManPageOfProgram(const std::vector<std::unique_ptr<Command>>& commands);

// penstock-COMMAND(1): what --help prints.
std::string ManPageOfCommand(Command& command);

// "penstock-simulate" for "simulate".
std::string ManPageName(std::string_view command);

}  // namespace penstock
