// What may be meant by an option that does not exist.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace penstock {

// Whether `name` with one dash ("-model", "-tp") is a long option, also by the name that other
// frameworks give to it.
bool NamesLongOption(const std::string& name, const CLI::App& app);

// Returns what to append to the error about an unknown option ("--tp") of a command: "; did you
// mean '--tensor'?", with an option that the command has, or with a key if it takes keys of a
// configuration; for what training lacks, ": " and what it has instead; or nothing.
std::string MeantOption(const std::string& name, const CLI::App& app);

}  // namespace penstock
