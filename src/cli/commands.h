// The table of subcommands.
#pragma once

#include <span>

#include "cli/command.h"

namespace penstock {

// In the order of --help.
std::span<const CommandFactory> Commands();

}  // namespace penstock
