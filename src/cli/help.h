// The text of --help, and the tables that manuals and shell completion share with it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace penstock {

// What the program is, in two sentences.
std::string AboutProgram();
std::string ProgramExitCodes();
// The program's commands, one line each, including help and version.
HelpGroup CommandsGroup(const std::vector<std::unique_ptr<Command>>& commands);

// "penstock validate SCHEDULE [OPTION...]". `app` is AppOf(command).
std::string UsageOf(const Command& command, const CLI::App& app);
// A command's arguments, its options by group, and MoreHelp().
std::vector<HelpGroup> GroupsOf(const Command& command, const CLI::App& app);
// The placeholder of an option's value; empty for a flag.
std::string ValueName(const CLI::Option& option);

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands);

std::string HelpOfCommand(const Command& command, const CLI::App& app);

// A name and its meaning in two columns, at most 96 characters wide. Ends with '\n'.
std::string HelpEntry(const std::string& name, std::string_view text);

}  // namespace penstock
