#include "cli/sweep/sweep_page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/files.h"
#include "cli/figures/comparison.h"
#include "cli/sweep/sweep_output.h"
#include "report/markup.h"
#include "report/page/page_parts.h"

namespace penstock {
namespace {

constexpr std::size_t kMostRows = 12;  // of charts
constexpr std::size_t kMostNamed = 3;  // schedules in the conclusion

// A figure over the swept values.
struct Chart {
  const char* title;
  double (*value)(const Simulated& simulated);
  std::string (*axis)(const Simulated& simulated);
};
constexpr std::array kCharts = {
    Chart{"Makespan", [](const Simulated& s) { return s.result.makespan; },
          [](const Simulated& s) -> std::string {
            return s.chosen.time_unit.empty() ? "makespan, unit of --cost"
                                              : "makespan, " + s.chosen.time_unit;
          }},
    Chart{"Bubble", [](const Simulated& s) { return 100 * s.result.bubble; },
          [](const Simulated&) -> std::string { return "bubble, %"; }},
    Chart{"Peak activations",
          [](const Simulated& s) {
            return s.result.peak_memory / (s.chosen.memory_unit.empty() ? 1 : 0x1p30);
          },
          [](const Simulated& s) -> std::string {
            return s.chosen.memory_unit.empty() ? "peak activations" : "peak activations, GiB";
          }}};

// The key on the x axis; nothing if no key has several values.
std::optional<std::size_t> XAxis(const SweepPlan& plan) {
  const auto& axes = plan.axes();
  const auto longest = std::max_element(
      axes.begin(), axes.end(),
      [](const SweepAxis& a, const SweepAxis& b) { return a.values.size() < b.values.size(); });
  if (longest == axes.end() || longest->values.size() < 2) return std::nullopt;
  return static_cast<std::size_t>(longest - axes.begin());
}

// The values of all keys but the x axis's: "ranks 8, comm 0.1".
std::string OtherValues(const SweepPlan& plan, std::size_t x_axis, std::size_t combination) {
  std::vector<std::string> values;
  for (std::size_t axis = 0; axis < plan.axes().size(); ++axis) {
    if (axis == x_axis) continue;
    values.push_back(NameOf(plan.axes()[axis]) + " " +
                     plan.axes()[axis].values[plan.ValueOf(combination, axis)]);
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

// Requires: there are combinations, and all were simulated.
Plot PlotOf(const SweepPlan& plan, const std::vector<SweptSchedule>& swept, const Chart& chart,
            std::size_t x_axis, const std::vector<std::size_t>& combinations) {
  const SweepAxis& axis = plan.axes()[x_axis];
  Plot plot{chart.title,
            NameOf(axis),
            chart.axis(*swept[combinations.back()].simulated),
            {},
            axis.values};
  std::vector<Series> series(plan.schedules().size());
  for (const std::size_t combination : combinations) {
    const Simulated& simulated = *swept[combination].simulated;
    Series& line = series[plan.ScheduleOf(combination)];
    line.name = simulated.chosen.label;
    line.points.emplace_back(plan.ValueOf(combination, x_axis), chart.value(simulated));
  }
  for (Series& line : series) {
    if (!line.points.empty()) plot.series.push_back(std::move(line));
  }
  return plot;
}

// Rows of charts, one per combination of the values that are not on the x axis.
std::string Charts(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  const std::optional<std::size_t> x_axis = XAxis(plan);
  if (!x_axis) return "";
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < swept.size(); ++i) {
    if (!swept[i].simulated) continue;
    const std::string name = OtherValues(plan, *x_axis, i);
    if (!rows.contains(name)) names.push_back(name);
    rows[name].push_back(i);
  }
  std::string html;
  for (std::size_t i = 0; i < std::min(names.size(), kMostRows); ++i) {
    html += "<div class=\"columns\">";
    for (const Chart& chart : kCharts) {
      Plot plot = PlotOf(plan, swept, chart, *x_axis, rows.at(names[i]));
      if (!names[i].empty()) plot.title += ", " + names[i];
      html += PlotCard(plot);
    }
    html += "</div>\n";
  }
  if (names.size() > kMostRows) {
    html += fmt::format(
        "<p class=\"hint\">Charts of the first {} of {} combinations of the other keys.</p>\n",
        kMostRows, names.size());
  }
  return html;
}

std::string SkippedHtml(const std::vector<SweptSchedule>& swept) {
  Table table{"", {"reason", "combinations"}, {}};
  for (const auto& [reason, count] : SkippedReasons(swept)) {
    table.rows.push_back({reason, fmt::format("{}", count)});
  }
  return table.rows.empty() ? "" : TableCard("Skipped", table);
}

std::string TitleOf(const SweepPlan& plan) {
  std::vector<std::string> keys;
  for (const SweepAxis& axis : plan.axes()) keys.push_back(NameOf(axis));
  if (plan.schedules().size() > 1) keys.emplace_back("schedule");
  return fmt::format("Sweep of {}", fmt::join(keys, ", "));
}

// "The shortest schedule is zbv in 3 of 4 comparisons, 1f1b in 1."
std::string Conclusion(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  std::map<std::size_t, std::vector<const Simulated*>> groups;
  for (std::size_t i = 0; i < swept.size(); ++i) {
    if (swept[i].simulated) groups[plan.GroupOf(i)].push_back(&*swept[i].simulated);
  }
  std::erase_if(groups, [](const auto& entry) { return entry.second.size() < 2; });
  if (plan.schedules().size() < 2 || groups.empty()) return "";
  const RankedFigure& makespan = RankedFigures(/*with_jitter=*/false).front();
  std::map<std::string, std::size_t> wins;
  for (const auto& [number, group] : groups) {
    for (const Simulated* each : BestOf(group, makespan)) ++wins[each->chosen.label];
  }
  std::vector<std::pair<std::string, std::size_t>> sorted(wins.begin(), wins.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& each) { return each.second; });
  if (sorted.empty()) return "No schedule stays within its limit.";
  std::size_t all = 0;
  for (const auto& [label, count] : sorted) all += count;
  sorted.resize(std::min(sorted.size(), kMostNamed));
  std::vector<std::string> parts;
  for (const auto& [label, count] : sorted) parts.push_back(fmt::format("{} in {}", label, count));
  parts.front() += fmt::format(" of {} comparisons", groups.size());
  return fmt::format("The shortest schedule is {}{}.", fmt::join(parts, ", "),
                     all > groups.size() ? ", some of them as short as others" : "");
}

std::string ConclusionHtml(const std::string& sentence) {
  if (sentence.empty()) return "";
  return R"(<section class="card conclusions"><p>)" + EscapeMarkup(sentence) + "</p></section>\n";
}

}  // namespace

std::string SweepPage(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  const Table table = SweepTable(plan, swept);
  return PageStart(TitleOf(plan), CountsText(swept)) + ConclusionHtml(Conclusion(plan, swept)) +
         Charts(plan, swept) +
         CardHtml("All combinations", TableHtml(table, "All combinations") + "<p class=\"hint\">" +
                                          EscapeMarkup(LegendText(plan, swept, table)) + "</p>") +
         SkippedHtml(swept) + PageEnd("Made by Penstock.");
}

Status WriteSweepPage(const SweepPlan& plan, const std::vector<SweptSchedule>& swept,
                      const std::string& path) {
  return WriteFileAtomically(path, SweepPage(plan, swept));
}

}  // namespace penstock
