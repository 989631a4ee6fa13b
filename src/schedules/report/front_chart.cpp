#include "report/front_chart.h"

#include <algorithm>
#include <cmath>

#include "report/markup.h"
#include "report/plot_frame.h"

namespace penstock {
namespace {

constexpr double kChartHeight = 340;
// A limit that is farther away than this many times the largest memory is only named.
constexpr double kFarthestLimit = 2.5;

class FrontChart {
 public:
  FrontChart(const FrontPage& page, double width)
      : page_(page), width_(width), scale_(page.report.memory_unit == "B" ? 0x1p-30 : 1) {
    frame_.right -= kPlotWidth - width;
    frame_.bottom = kChartHeight - 50;
    Cover();
  }

  std::string Draw() {
    std::string svg =
        fmt::format(R"(<svg class="front {}" viewBox="0 0 {} {}" role="group" aria-label="{}">)",
                    ClassOfWidth(width_), width_, kChartHeight, EscapeMarkup(Description()));
    svg += XTicks(frame_) + YTicks(frame_) + Limit() + Bounds() + Steps();
    // The front lies above the others.
    for (const bool in_front : {false, true}) {
      for (std::size_t i = 0; i < page_.plans.size(); ++i) {
        if (page_.plans[i].in_front == in_front) svg += Point(i);
      }
    }
    const std::string unit = page_.report.memory_unit == "B" ? ", GiB" : "";
    const std::string time_unit = page_.report.time_unit == "s" ? ", s" : "";
    return svg + fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">{}{}</text>)"
                             R"(<text x="4" y="12">{}{}</text></svg>)",
                             (frame_.left + frame_.right) / 2, kChartHeight - 8,
                             EscapeMarkup(page_.memory_name), unit, EscapeMarkup(page_.time_name),
                             time_unit);
  }

 private:
  double X(double memory) const { return frame_.X(memory * scale_); }
  std::string Time(double value) const { return FormatAmount(value, page_.report.time_unit); }
  std::string Memory(double value) const { return FormatAmount(value, page_.report.memory_unit); }

  void Cover() {
    double most = 0;
    for (const FrontPlan& plan : page_.plans) {
      frame_.x.Cover(plan.memory * scale_);
      frame_.y.Cover(plan.time);
      most = std::max(most, plan.memory);
    }
    for (const FrontBound& bound : page_.bounds) frame_.y.Cover(bound.time);
    shows_limit_ = page_.memory_limit && *page_.memory_limit <= kFarthestLimit * most;
    if (shows_limit_) frame_.x.Cover(*page_.memory_limit * scale_);
    constexpr double kLeastRange = 0.1, kMargin = 0.07;
    for (PlotRange* range : {&frame_.x, &frame_.y}) {
      range->MakeSound(kLeastRange);
      const double margin = kMargin * range->width();
      range->low = std::max(range->low - margin, std::min(range->low, 0.0));
      range->high += margin;
    }
    MakeRoomForTicks(frame_);
  }

  std::string Description() const {
    const auto front = std::ranges::count(page_.plans, true, &FrontPlan::in_front);
    std::string text = fmt::format("{} over {}: {} plan{} of the front", page_.time_name,
                                   page_.memory_name, front, front == 1 ? "" : "s");
    const auto others = static_cast<std::ptrdiff_t>(page_.plans.size()) - front;
    if (others > 0) text += fmt::format(", {} that lost", others);
    if (!page_.bounds.empty()) text += "; lower bound " + Time(page_.bounds.back().time);
    if (page_.memory_limit) text += "; memory limit " + Memory(*page_.memory_limit);
    return text;
  }

  // Where a text ends, if it must not begin left of the frame.
  double EndOfText(double x, std::string_view text) const {
    return std::max(x, frame_.left + 4 + TextWidth(text));
  }

  std::string Limit() const {
    if (!page_.memory_limit) return "";
    const std::string text = "memory limit " + Memory(*page_.memory_limit);
    if (!shows_limit_) {
      return fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{} &#8594;</text>)", frame_.right,
                         frame_.top - 6, text);
    }
    const double x = X(*page_.memory_limit);
    return fmt::format(R"(<line class="limit" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)"
                       R"(<text x="{3:.1f}" y="{4}" text-anchor="end">{5}</text>)",
                       x, frame_.top - 14, frame_.bottom, EndOfText(x - 6, text), frame_.top - 6,
                       text);
  }

  // Within the memory of a bound and less, nothing is shorter.
  std::string Bounds() const {
    if (page_.bounds.empty()) return "";
    std::string path = fmt::format("M{}", frame_.left);
    double end = frame_.left;
    for (const FrontBound& bound : page_.bounds) {
      end = std::clamp(X(bound.memory), end, frame_.right);
      path += fmt::format("{}{:.1f}H{:.1f}", &bound == &page_.bounds.front() ? " " : "V",
                          frame_.Y(bound.time), end);
    }
    const double lowest = page_.bounds.back().time;
    const std::string name = "lower bound " + Time(lowest);
    return fmt::format(R"(<path class="bound" d="{}"/><text x="{:.1f}" y="{:.1f}" )"
                       R"(text-anchor="end">{}</text>)",
                       path, EndOfText(end - 8, name), frame_.Y(lowest) + 14, name);
  }

  // For each memory, the time of the best plan that fits into it.
  std::string Steps() const {
    std::vector<const FrontPlan*> front;
    for (const FrontPlan& plan : page_.plans) {
      if (plan.in_front) front.push_back(&plan);
    }
    if (front.empty()) return "";
    std::ranges::sort(front, {}, &FrontPlan::memory);
    std::string path = fmt::format("M{:.1f} {:.1f}", X(front[0]->memory), frame_.Y(front[0]->time));
    for (std::size_t i = 1; i < front.size(); ++i) {
      path += fmt::format("H{:.1f}V{:.1f}", X(front[i]->memory), frame_.Y(front[i]->time));
    }
    const double end = shows_limit_ ? X(*page_.memory_limit) : frame_.right;
    return fmt::format(R"(<path class="steps" d="{}H{:.1f}"/>)", path, end);
  }

  std::string Point(std::size_t index) {
    const FrontPlan& plan = page_.plans[index];
    const double x = X(plan.memory), y = frame_.Y(plan.time);
    std::string label =
        fmt::format("{}: {}; {} {}; {} {}", NumberedPlan(index), plan.name, page_.time_name,
                    Time(plan.time), page_.memory_name, Memory(plan.memory));
    if (!plan.note.empty()) label += "; " + plan.note;
    return fmt::format(
        R"(<a href="#plan={0}" aria-label="{1}"{2}><circle class="hit" cx="{3:.1f}" cy="{4:.1f}" )"
        R"(r="{5}"/><circle class="dot" cx="{3:.1f}" cy="{4:.1f}" r="{6}"/>{7}</a>)"
        "\n",
        index + 1, EscapeMarkup(label), plan.in_front ? "" : R"( class="other")", x, y,
        plan.in_front ? 13 : 10, plan.in_front ? 5.5 : 4.5, Number(index, x + 8, y - 7));
  }

  // The number of a plan, where there is room for it.
  std::string Number(std::size_t index, double x, double y) {
    constexpr double kWidth = 18, kHeight = 12;
    for (const auto& [other_x, other_y] : numbers_) {
      if (std::abs(other_x - x) < kWidth && std::abs(other_y - y) < kHeight) return "";
    }
    numbers_.emplace_back(x, y);
    return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" aria-hidden="true">{}</text>)", x, y,
                       index + 1);
  }

  const FrontPage& page_;
  double width_;
  double scale_ = 1;  // of memory
  PlotFrame frame_;
  bool shows_limit_ = false;
  std::vector<std::pair<double, double>> numbers_;
};

}  // namespace

std::string FrontSvg(const FrontPage& page) {
  return FrontChart(page, kPlotWidth).Draw() + FrontChart(page, kNarrowPlotWidth).Draw();
}

}  // namespace penstock
