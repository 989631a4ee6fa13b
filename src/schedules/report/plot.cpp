// Plots: lines over x, with ticks and a legend.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "report/markup.h"
#include "report/plot_frame.h"

namespace penstock {
namespace {

// Hues of ops, so that all pictures agree, with a contrast of at least 3 to white and to the page's
// dark cards. More series than colors have dashed lines.
struct SeriesStyle {
  Color color;
  std::string_view dashes;  // of stroke-dasharray
};
constexpr std::array<Color, 7> kSeriesColors = {{{0x2f, 0x7d, 0xe1},
                                                 {0xcb, 0x7a, 0x12},
                                                 {0x2a, 0x97, 0x69},
                                                 {0xd0, 0x4a, 0x5b},
                                                 {0xc0, 0x5f, 0xb5},
                                                 {0x86, 0x6d, 0xdc},
                                                 {0x18, 0x93, 0xa3}}};
constexpr std::array<std::string_view, 4> kDashes = {"none", "7 3", "2 3", "10 3 2 3"};

SeriesStyle StyleOf(std::size_t index) {
  return {kSeriesColors[index % kSeriesColors.size()],
          kDashes[index / kSeriesColors.size() % kDashes.size()]};
}

std::string Dot(const PlotFrame& frame, double x, double y, double radius, Color color,
                const std::string& inside) {
  return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="{}">{}</circle>)", frame.X(x),
                     frame.Y(y), radius, Hex(color), inside);
}

// The dots of a series whose x are names. A browser shows their titles as tooltips.
std::string Dots(const PlotFrame& frame, const Plot& plot, const Series& series, Color color) {
  std::string dots;
  for (const auto& [x, y] : series.points) {
    if (!std::isfinite(y)) continue;
    const std::string title = fmt::format("{}, {} {}: {}", series.name, plot.x_name,
                                          plot.x_labels[Index(std::lround(x))], FormatNumber(y));
    dots += Dot(frame, x, y, 3, color, "<title>" + EscapeMarkup(title) + "</title>");
  }
  return dots;
}

std::string Line(const PlotFrame& frame, const Series& series, const SeriesStyle& style) {
  std::string points;
  std::string dot;
  int count = 0;
  for (const auto& [x, y] : series.points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    points += fmt::format("{:.1f},{:.1f} ", frame.X(x), frame.Y(y));
    dot = Dot(frame, x, y, 4.5, style.color, "");
    ++count;
  }
  if (count == 1) return dot;
  return fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.8" )"
                     R"(stroke-linejoin="round" stroke-dasharray="{}"/>)",
                     points, Hex(style.color), style.dashes);
}

// The beginning of a text that is wider than that.
std::string Shortened(const std::string& text, double width) {
  if (TextWidth(text) <= width) return text;
  auto size = static_cast<std::size_t>(std::max(1.0, width / TextWidth(".")) - 1);
  while (size > 0 && (static_cast<unsigned char>(text[size]) >> 6) == 2) --size;  // whole letters
  return text.substr(0, size) + "…";
}

// Names above the plot, next to samples of their lines. Empty if they do not fit.
std::string NamesAbove(const PlotFrame& frame, const Plot& plot) {
  std::string text;
  double right = frame.right;
  for (std::size_t i = plot.series.size(); i-- > 0;) {
    const std::string& name = plot.series[i].name;
    text +=
        fmt::format(R"(<rect x="{:.1f}" y="4" width="10" height="8" rx="2" fill="{}"/>)"
                    R"(<text x="{:.1f}" y="12" text-anchor="end">{}</text>)",
                    right - TextWidth(name) - 14, Hex(StyleOf(i).color), right, EscapeMarkup(name));
    right -= TextWidth(name) + 32;
  }
  const bool fits = right > TextWidth(plot.y_name) && plot.series.size() <= kSeriesColors.size();
  return fits ? text : "";
}

// Lines with their names below the plot. Sets `height`, the height of the whole picture.
std::string NamesBelow(const PlotFrame& frame, const Plot& plot, double& height) {
  constexpr double kLine = 24, kRow = 18;
  std::string text;
  double x = frame.left, y = height + 10;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const std::string name = Shortened(plot.series[i].name, frame.right - frame.left - kLine - 6);
    const double width = kLine + 6 + TextWidth(name) + 18;
    if (x > frame.left && x + width > frame.right) {
      x = frame.left;
      y += kRow;
    }
    const SeriesStyle style = StyleOf(i);
    text += fmt::format(R"(<line x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}" stroke="{}" )"
                        R"(stroke-width="2.4" stroke-dasharray="{}"/>)"
                        R"(<text x="{:.1f}" y="{}">{}</text>)",
                        x, x + kLine, y - 4, y - 4, Hex(style.color), style.dashes, x + kLine + 6,
                        y, EscapeMarkup(name));
    x += width;
  }
  height = y + 8;
  return text;
}

// What a screen reader says: "Loss: nats per byte over step; training from 5.5 to 1.8".
std::string Description(const Plot& plot) {
  std::string text = plot.title + ":";
  if (!plot.y_name.empty()) text += " " + plot.y_name;
  text += " over " + plot.x_name;
  for (const Series& series : plot.series) {
    if (series.points.empty()) continue;
    const double first = series.points.front().second, last = series.points.back().second;
    text += fmt::format("; {} {}", series.name, FormatNumber(first));
    if (series.points.size() > 1) text += " to " + FormatNumber(last);
  }
  return text;
}

struct DrawnPlot {
  std::string svg;
  double height = 0;
};

DrawnPlot Draw(const Plot& plot, double width) {
  PlotFrame frame;
  frame.right -= kPlotWidth - width;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      frame.x.Cover(x);
      frame.y.Cover(y);
    }
  }
  for (std::size_t i = 0; i < plot.x_labels.size(); ++i) frame.x.Cover(static_cast<double>(i));
  const bool only_dots =
      plot.x_labels.empty() && std::ranges::all_of(plot.series, [](const Series& series) {
        return series.points.size() < 2;
      });
  const bool compares = only_dots || !plot.x_labels.empty();
  constexpr double kLeastRange = 0.2;  // of figures that are compared; curves have their own range
  frame.x.MakeSound(only_dots ? kLeastRange : 0);
  frame.y.MakeSound(compares ? kLeastRange : 0);
  const double side = only_dots ? frame.x.width() * 0.05 : 0;
  frame.x.low -= side;
  frame.x.high += side;
  const double margin = frame.y.width() * 0.05;
  frame.y.low -= margin;
  frame.y.high += margin;

  MakeRoomForTicks(frame);
  std::string inside = XTicks(frame, plot.x_labels) + YTicks(frame);
  for (std::size_t i = plot.series.size(); i-- > 0;) {
    const SeriesStyle style = StyleOf(i);
    inside += Line(frame, plot.series[i], style);
    if (!plot.x_labels.empty()) inside += Dots(frame, plot, plot.series[i], style.color);
  }
  double height = kPlotHeight;
  std::string names = NamesAbove(frame, plot);
  if (names.empty()) names = NamesBelow(frame, plot, height);
  const std::string svg =
      fmt::format(R"(<svg class="plot {}" viewBox="0 0 {} {}" role="img" aria-label="{}" )"
                  R"(data-scale="{} {} {} {}">{})"
                  R"(<line class="cross" y1="{}" y2="{}" x1="0" x2="0"/>)"
                  R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)"
                  R"(<text x="{}" y="12">{}</text></svg>)",
                  ClassOfWidth(width), width, height, EscapeMarkup(Description(plot)), frame.x.low,
                  frame.x.high, frame.left, frame.right, inside + names, frame.top, frame.bottom,
                  (frame.left + frame.right) / 2, kPlotHeight - 8, EscapeMarkup(plot.x_name), 4,
                  EscapeMarkup(plot.y_name));
  return {svg, height};
}

}  // namespace

std::string PlotSvg(const Plot& plot) {
  return Draw(plot, kPlotWidth).svg + Draw(plot, kNarrowPlotWidth).svg;
}

std::string RenderPlot(const Plot& plot) {
  const auto [svg, height] = Draw(plot, kPlotWidth);
  // What page.css says of a plot, for a picture that stands alone.
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif" )"
      R"(font-size="12" fill="#5f6b7c">)"
      "\n<style>.grid{{stroke:#18212f;stroke-opacity:.09}}.cross{{visibility:hidden}}</style>\n"
      R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
      "\n{2}\n</svg>\n",
      kPlotWidth, height, svg);
}

}  // namespace penstock
