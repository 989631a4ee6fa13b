// The text of --help, and the tables that manuals and shell completion share with it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command/command.h"

namespace penstock {

// What the program is, in two sentences.
std::string AboutProgram();
std::string ProgramExitCodes();
// The program's commands by task, one line each, including help and version.
std::vector<HelpGroup> CommandGroups(const std::vector<std::unique_ptr<Command>>& commands);
// The examples of a command, or of the program for an empty name.
HelpGroup ExamplesGroup(std::string_view command);

// "penstock validate SCHEDULE [OPTION...]". `app` is AppOf(command).
std::string UsageOf(const Command& command, const CLI::App& app);
// A command's arguments and its options by group.
std::vector<HelpGroup> OptionGroups(const CLI::App& app);
// Returns OptionGroups, followed by MoreHelp().
std::vector<HelpGroup> GroupsOf(const Command& command, const CLI::App& app);
// The placeholder of an option's value; empty for a flag.
std::string ValueName(const CLI::Option& option);

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands);

// What -h prints: the options in a few words.
std::string ShortHelpOfCommand(const Command& command, const CLI::App& app);
std::string HelpOfCommand(const Command& command, const CLI::App& app);

// A name and its meaning in two columns, as wide as the terminal. Ends with '\n'.
std::string HelpEntry(const std::string& name, std::string_view text);

}  // namespace penstock
