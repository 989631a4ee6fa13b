// The text of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace penstock {

// The program's commands, one line each.
std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands);

// A command's arguments and its options by group, as Define() added them to `app`.
std::string HelpOfCommand(const Command& command, const CLI::App& app);

// A name and its meaning in two columns, at most 96 characters wide. Ends with '\n'.
std::string HelpEntry(const std::string& name, std::string_view text);

}  // namespace penstock
