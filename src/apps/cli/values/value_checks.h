// Checks that hold for the values of all options of all commands.
#pragma once

#include <CLI/CLI.hpp>

namespace penstock {

// Refuses values that CLI11 would read as something else: numbers that are not whole or not finite
// ("1e20", "nan"), or negative (-1 as 2^64 - 1), and empty values of options.
void CheckOptionValues(CLI::App& app);

}  // namespace penstock
