// Standard output as a terminal: whether it has colors, and how wide it is.
#pragma once

#include <cstddef>
#include <string>

#include "report/table.h"

namespace penstock {

// Whether standard output is a terminal with colors and bold text: one that is not dumb, unless
// NO_COLOR is set (no-color.org).
bool OutputHasColor();

// Columns of the terminal; 0 if standard output is none.
std::size_t OutputColumns();

// The table as aligned lines that fit the terminal; whole lines elsewhere. Best values are bold.
std::string TableText(const Table& table);

}  // namespace penstock
