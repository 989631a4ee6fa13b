#include "report/terminal_colors.h"

#include <array>
#include <cstdlib>

namespace penstock {
namespace {

// The levels of xterm's cube.
constexpr std::array<int, 6> kLevels = {0, 95, 135, 175, 215, 255};
constexpr int kFirstOfCube = 16, kFirstGray = 232, kGrays = 24;

int NearestLevel(int part) {
  int nearest = 0;
  for (int i = 1; i < 6; ++i) {
    if (std::abs(kLevels[i] - part) < std::abs(kLevels[nearest] - part)) nearest = i;
  }
  return nearest;
}

int Distance(Color color, int red, int green, int blue) {
  const int r = color.red - red, g = color.green - green, b = color.blue - blue;
  return r * r + g * g + b * b;
}

std::string Parameters(Color color, ColorDepth depth, int ground) {
  if (depth == ColorDepth::kTrue) {
    return fmt::format("{};2;{};{};{}", ground, color.red, color.green, color.blue);
  }
  return fmt::format("{};5;{}", ground, TerminalColor(color));
}

}  // namespace

int TerminalColor(Color color) {
  const int red = NearestLevel(color.red), green = NearestLevel(color.green),
            blue = NearestLevel(color.blue);
  const int of_cube = Distance(color, kLevels[red], kLevels[green], kLevels[blue]);
  const int mean = (color.red + color.green + color.blue) / 3;
  const int gray = std::clamp((mean - 3) / 10, 0, kGrays - 1);
  const int level = 8 + 10 * gray;
  if (Distance(color, level, level, level) < of_cube) return kFirstGray + gray;
  return kFirstOfCube + 36 * red + 6 * green + blue;
}

std::string SetColors(Color text, Color background, ColorDepth depth) {
  return fmt::format("\x1b[{};{}m", Parameters(text, depth, 38), Parameters(background, depth, 48));
}

std::string SetTextColor(Color text, ColorDepth depth) {
  return fmt::format("\x1b[{}m", Parameters(text, depth, 38));
}

}  // namespace penstock
