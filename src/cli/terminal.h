// What the terminal that the program writes to can show.
#pragma once

namespace penstock {

// Whether standard output is a terminal with colors and bold text: one that is not dumb, unless
// NO_COLOR is set (no-color.org).
bool OutputHasColor();

}  // namespace penstock
