// The frame of a plot: ranges of values, their positions in the picture, and ticks.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace penstock {

struct PlotRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Cover(double value);  // nothing where it is not finite
  // Makes the range nonempty, and at least `share` of its values: a narrow range would make
  // differences look large.
  void MakeSound(double share);
  double width() const { return high - low; }
};

// The inner rectangle of the plot, in the picture's units.
struct PlotFrame {
  double left = 62, right = 700, top = 30, bottom = 250;
  PlotRange x = {}, y = {};

  double X(double value) const { return left + (value - x.low) / x.width() * (right - left); }
  double Y(double value) const { return bottom - (value - y.low) / y.width() * (bottom - top); }
};
inline constexpr double kPlotWidth = 720;
inline constexpr double kPlotHeight = 300;

// The figures below the plot. If there are labels, they are the names of x = 0, 1, 2, ...
std::string XTicks(const PlotFrame& frame, const std::vector<std::string>& labels = {});
// The figures left of the plot, with lines.
std::string YTicks(const PlotFrame& frame);

}  // namespace penstock
