// The arguments of a command as one line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace penstock {

// Returns the line that repeats a parsed command: "penstock NAME", its operands, then its options,
// quoted for a shell.
std::string CommandLine(const std::string& name, const CLI::App& app);

}  // namespace penstock
