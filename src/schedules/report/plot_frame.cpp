#include "report/plot_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/markup.h"

namespace penstock {
namespace {

std::string XTick(const PlotFrame& frame, double x, std::string_view text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", frame.X(x),
                     frame.bottom + 18, EscapeMarkup(text));
}

}  // namespace

void PlotRange::Cover(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

void PlotRange::MakeSound(double share) {
  if (!(low <= high)) low = high = 0;
  const double least = share * std::max(std::abs(low), std::abs(high));
  const double missing = (low == high ? std::max(least, 1.0) : least) - width();
  if (missing <= 0) return;
  low -= missing / 2;
  high += missing / 2;
}

std::string XTicks(const PlotFrame& frame, const std::vector<std::string>& labels) {
  constexpr int kMostTicks = 7;
  std::string text;
  if (!labels.empty()) {
    const std::size_t every = (labels.size() + kMostTicks - 1) / kMostTicks;
    for (std::size_t i = 0; i < labels.size(); i += every) {
      text += XTick(frame, static_cast<double>(i), labels[i]);
    }
    return text;
  }
  const double step = TickStep(frame.x.width(), kMostTicks);
  for (double tick = std::ceil(frame.x.low / step); tick * step <= frame.x.high; ++tick) {
    text += XTick(frame, tick * step, FormatNumber(tick * step, 6));
  }
  return text;
}

std::string YTicks(const PlotFrame& frame) {
  std::string text;
  const double step = TickStep(frame.y.width(), 5);
  for (double tick = std::ceil(frame.y.low / step); tick * step <= frame.y.high; ++tick) {
    const double y = frame.Y(tick * step);
    text += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)"
                        R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                        frame.left, frame.right, y, y, frame.left - 8, y + 4,
                        FormatNumber(tick * step, 6));
  }
  return text;
}

}  // namespace penstock
