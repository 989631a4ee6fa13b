// Colors of terminals.
#pragma once

#include <string>

#include "report/palette.h"

namespace penstock {

enum class ColorDepth {
  kNone,
  k256,   // the cube and the grays of 256-color terminals
  kTrue,  // 24 bits
};

// The nearest color in the 6x6x6 cube and the grays of a 256-color terminal.
int TerminalColor(Color color);

// The escape sequence that sets both colors. Requires: depth is not kNone.
std::string SetColors(Color text, Color background, ColorDepth depth);
// Returns the code that sets the color of the text only.
std::string SetTextColor(Color text, ColorDepth depth);
inline constexpr const char* kResetColors = "\x1b[0m";

}  // namespace penstock
