// What the terminal that the program writes to can show.
#pragma once

#include "report/terminal_colors.h"

namespace penstock {

// Whether standard output is a terminal with colors and bold text: one that is not dumb, unless
// NO_COLOR is set (no-color.org).
bool OutputHasColor();

// The colors of that terminal, by COLORTERM.
ColorDepth TerminalDepth();

// Whether the locale's character set is UTF-8.
bool OutputHasUnicode();

}  // namespace penstock
