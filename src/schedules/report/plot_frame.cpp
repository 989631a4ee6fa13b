#include "report/plot_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/markup.h"

namespace penstock {
namespace {

constexpr double kTickGap = 8;  // between the frame and the figures left of it

std::vector<double> TicksOf(const PlotRange& range, int most = 5) {
  std::vector<double> ticks;
  const double step = TickStep(range.width(), most);
  for (double tick = std::ceil(range.low / step); tick * step <= range.high; ++tick) {
    ticks.push_back(tick * step);
  }
  return ticks;
}

constexpr double kTickMargin = 18;  // right of the frame, for half of the last tick's name

std::string XTick(const PlotFrame& frame, double x, std::string_view text) {
  const double most = frame.right + kTickMargin;
  const bool fits = frame.X(x) + TextWidth(text) / 2 <= most;
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)",
                     fits ? frame.X(x) : most, frame.bottom + 18, fits ? "middle" : "end",
                     EscapeMarkup(text));
}

}  // namespace

void PlotRange::Cover(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

void PlotRange::MakeSound(double share) {
  if (!(low <= high)) low = high = 0;
  if (low == high && share > 0) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  const double least = share * std::max(std::abs(low), std::abs(high));
  const double missing = (low == high ? std::max(least, 1.0) : least) - width();
  if (missing <= 0) return;
  low -= missing / 2;
  high += missing / 2;
}

std::string XTicks(const PlotFrame& frame, const std::vector<std::string>& labels) {
  constexpr double kBetweenNumbers = 90, kBetweenLabels = 16;
  const double width = frame.right - frame.left;
  std::string text;
  if (!labels.empty()) {
    double longest = 0;
    for (const std::string& label : labels) longest = std::max(longest, TextWidth(label));
    const double all = static_cast<double>(labels.size()) * (longest + kBetweenLabels);
    const auto every = static_cast<std::size_t>(std::max(1.0, std::ceil(all / width)));
    for (std::size_t i = 0; i < labels.size(); i += every) {
      text += XTick(frame, static_cast<double>(i), labels[i]);
    }
    return text;
  }
  for (const double tick : TicksOf(frame.x, static_cast<int>(width / kBetweenNumbers))) {
    text += XTick(frame, tick, FormatNumber(tick, 6));
  }
  return text;
}

void MakeRoomForTicks(PlotFrame& frame) {
  for (const double tick : TicksOf(frame.y)) {
    frame.left = std::max(frame.left, TextWidth(FormatNumber(tick, 6)) + kTickGap);
  }
}

std::string YTicks(const PlotFrame& frame) {
  std::string text;
  for (const double tick : TicksOf(frame.y)) {
    const double y = frame.Y(tick);
    text += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)"
                        R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                        frame.left, frame.right, y, y, frame.left - kTickGap, y + 4,
                        FormatNumber(tick, 6));
  }
  return text;
}

}  // namespace penstock
