// The frame of a plot: ranges of values, their positions in the picture, and ticks.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct PlotRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Cover(double value);  // nothing where it is not finite
  // Makes the range nonempty, and at least `share` of its values: a narrow range would make
  // differences look large. If all values are equal and `share` is not 0, the range begins at 0.
  void MakeSound(double share);
  double width() const { return high - low; }
};

// The inner rectangle of the plot, in the picture's units.
inline constexpr double kPlotWidth = 720, kNarrowPlotWidth = 360;
inline constexpr double kPlotHeight = 300;

// The class of a picture of this width, by which page.css chooses the one that fits a card.
inline const char* ClassOfWidth(double width) { return width < kPlotWidth ? "narrow" : "wide"; }
// About how wide a text is in a plot.
inline double TextWidth(std::string_view text) { return 7.0 * static_cast<double>(text.size()); }

struct PlotFrame {
  double left = 62, right = kPlotWidth - 20, top = 30, bottom = 250;
  PlotRange x = {}, y = {};

  double X(double value) const { return left + (value - x.low) / x.width() * (right - left); }
  double Y(double value) const { return bottom - (value - y.low) / y.width() * (bottom - top); }
};
// The figures below the plot. If there are labels, they are the names of x = 0, 1, 2, ...
std::string XTicks(const PlotFrame& frame, const std::vector<std::string>& labels = {});
// Moves the left edge so that the widest figure of the y axis fits left of it.
void MakeRoomForTicks(PlotFrame& frame);
// The figures left of the plot, with lines.
std::string YTicks(const PlotFrame& frame);

}  // namespace penstock
