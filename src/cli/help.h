// The text of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace penstock {

// The program's: its commands, one line each.
std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands);

// One command's: its arguments and its options by group, as Define() left them in `app`.
std::string HelpOfCommand(const Command& command, const CLI::App& app);

// A name and what it means, in two columns of at most 96 together; ends with '\n'.
std::string HelpEntry(const std::string& name, std::string_view text);

}  // namespace penstock
