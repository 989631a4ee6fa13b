#include "report/markup.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace penstock {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Cover(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Makes the range nonempty.
  void MakeSound() {
    if (!(low <= high)) low = high = 0;
    if (low == high) {
      low -= 0.5;
      high += 0.5;
    }
  }
  double width() const { return high - low; }
};

// The inner rectangle of the plot, in the picture's units.
struct Frame {
  double left = 62, right = 700, top = 14, bottom = 250;
  Range x, y;

  double X(double value) const { return left + (value - x.low) / x.width() * (right - left); }
  double Y(double value) const { return bottom - (value - y.low) / y.width() * (bottom - top); }
};
constexpr double kPlotWidth = 720;
constexpr double kPlotHeight = 300;

// Series have the colors of ops, so that all pictures share one palette.
Color SeriesColor(std::size_t index) {
  static constexpr Op kOps[] = {Op::kForward, Op::kBackwardWeight, Op::kBackward, Op::kStep,
                                Op::kRecompute};
  return BlockColor(kOps[index % std::size(kOps)], 0, 1);
}

std::string Ticks(const Frame& frame) {
  std::string text;
  const double x_step = TickStep(frame.x.width(), 7);
  for (double tick = std::ceil(frame.x.low / x_step); tick * x_step <= frame.x.high; ++tick) {
    text += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                        frame.X(tick * x_step), frame.bottom + 18, FormatNumber(tick * x_step, 6));
  }
  const double y_step = TickStep(frame.y.width(), 5);
  for (double tick = std::ceil(frame.y.low / y_step); tick * y_step <= frame.y.high; ++tick) {
    const double y = frame.Y(tick * y_step);
    text += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)"
                        R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                        frame.left, frame.right, y, y, frame.left - 8, y + 4,
                        FormatNumber(tick * y_step, 6));
  }
  return text;
}

std::string Line(const Frame& frame, const Series& series, Color color) {
  std::string points;
  std::string dot;
  int count = 0;
  for (const auto& [x, y] : series.points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    points += fmt::format("{:.1f},{:.1f} ", frame.X(x), frame.Y(y));
    dot = fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4.5" fill="{}"/>)", frame.X(x),
                      frame.Y(y), Hex(color));
    ++count;
  }
  if (count == 1) return dot;
  return fmt::format(
      R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.8" stroke-linejoin="round"/>)",
      points, Hex(color));
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string PlotSvg(const Plot& plot) {
  Frame frame;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      frame.x.Cover(x);
      frame.y.Cover(y);
    }
  }
  frame.x.MakeSound();
  frame.y.MakeSound();
  const double margin = frame.y.width() * 0.05;
  frame.y.low -= margin;
  frame.y.high += margin;

  std::string text =
      fmt::format(R"(<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}" )"
                  R"(data-scale="{} {} {} {}">)",
                  kPlotWidth, kPlotHeight, EscapeMarkup(plot.title), frame.x.low, frame.x.high,
                  frame.left, frame.right);
  text += Ticks(frame);
  double legend_x = frame.right;
  for (std::size_t i = plot.series.size(); i-- > 0;) {
    const Series& series = plot.series[i];
    text += Line(frame, series, SeriesColor(i));
    text += fmt::format(R"(<text x="{:.1f}" y="12" text-anchor="end" style="fill:{}">{}</text>)",
                        legend_x, Hex(SeriesColor(i)), EscapeMarkup(series.name));
    legend_x -= 7.0 * static_cast<double>(series.name.size()) + 18;
  }
  text += fmt::format(R"(<line class="cross" y1="{}" y2="{}" x1="0" x2="0"/>)"
                      R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)"
                      R"(<text x="{}" y="12">{}</text></svg>)",
                      frame.top, frame.bottom, (frame.left + frame.right) / 2, kPlotHeight - 8,
                      EscapeMarkup(plot.x_name), 4, EscapeMarkup(plot.y_name));
  return text;
}

std::string RenderPlot(const Plot& plot) {
  // What page.css says of a plot, for a picture that stands alone.
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif" )"
      R"(font-size="12" fill="#5f6b7c">)"
      "\n<style>.grid{{stroke:#18212f;stroke-opacity:.09}}.cross{{visibility:hidden}}</style>\n"
      R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
      "\n{2}\n</svg>\n",
      kPlotWidth, kPlotHeight, PlotSvg(plot));
}

std::string RunFigures(const ReportInput& input, const ReportRun& run) {
  std::string text =
      fmt::format("makespan {}, bubble {}", FormatAmount(run.result.makespan, input.time_unit),
                  FormatPercent(run.result.bubble));
  if (run.result.peak_memory > 0) {
    text += ", peak memory " + FormatAmount(run.result.peak_memory, input.memory_unit);
  }
  return text;
}

const Schedule& ScheduleOf(const ReportInput& input, const ReportRun& run) {
  return run.schedule != nullptr ? *run.schedule : *input.schedule;
}

std::vector<LegendEntry> LegendOf(const ReportInput& input) {
  std::vector<LegendEntry> legend;
  for (const ReportRun& run : input.runs) {
    const Schedule& schedule = ScheduleOf(input, run);
    const int chunks = std::max(1, MostChunks(schedule.placement));
    for (const Op op : DrawnOps(schedule, *run.timeline)) {
      std::vector<Color> colors;
      for (int chunk = 0; chunk < (IsCompute(op) ? chunks : 1); ++chunk) {
        colors.push_back(BlockColor(op, chunk, chunks));
      }
      const auto at = std::find_if(legend.begin(), legend.end(),
                                   [op](const LegendEntry& entry) { return entry.op == op; });
      if (at == legend.end()) {
        legend.push_back({op, std::move(colors)});
      } else if (colors.size() > at->colors.size()) {
        at->colors = std::move(colors);
      }
    }
  }
  std::sort(legend.begin(), legend.end(),
            [](const LegendEntry& a, const LegendEntry& b) { return a.op < b.op; });
  return legend;
}

Status CheckReport(const ReportInput& input) {
  if (input.schedule == nullptr || input.runs.empty()) {
    return InvalidArgument("a report needs a schedule and at least one run");
  }
  for (const ReportRun& run : input.runs) {
    const Schedule& schedule = ScheduleOf(input, run);
    const std::size_t ranks = schedule.ranks();
    if (ranks == 0) return InvalidArgument("run '{}' has no ranks", run.label);
    if (run.timeline == nullptr) return InvalidArgument("run '{}' has no timeline", run.label);
    PENSTOCK_TRY_STATUS(RequireSpans(schedule, *run.timeline));
    if (run.result.ranks.size() != ranks || (!run.memory.empty() && run.memory.size() != ranks)) {
      return InvalidArgument("run '{}' does not have the figures of all {} ranks", run.label,
                             ranks);
    }
    if (input.by_rank && schedule.ranks() != input.schedule->ranks()) {
      return InvalidArgument(
          "run '{}' has {} ranks, the report's schedule {}: not comparable by rank", run.label,
          ranks, input.schedule->ranks());
    }
  }
  return {};
}

}  // namespace penstock
