#include "cli/sweep/sweep_output.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "base/text/numbers.h"
#include "cli/figures/comparison.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostReasons = 10;  // below the table

// Consecutive combinations that are compared with each other.
struct RowGroup {
  std::vector<const Simulated*> members;
  std::vector<std::size_t> rows;
};

// `table` has these rows without their figures, which are added.
void AddFigures(const RowGroup& group, std::span<const RankedFigure> figures,
                const TableUnits& units, Table& table) {
  const Simulated& first = *group.members.front();
  std::size_t column = table.rows[group.rows.front()].size();
  for (const RankedFigure& figure : figures) {
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      std::vector<std::string>& row = table.rows[group.rows[i]];
      row.push_back(figure.text(*group.members[i], units));
      if (figure.ratio) row.push_back(RatioText(figure, *group.members[i], first));
    }
    MarkBest(table, column, figure, group.members, group.rows);
    column += figure.ratio ? 2 : 1;
  }
}

std::vector<const Simulated*> Members(const std::vector<SweptSchedule>& swept) {
  std::vector<const Simulated*> all;
  for (const SweptSchedule& each : swept) {
    if (each.simulated) all.push_back(&*each.simulated);
  }
  return all;
}

// Schedules without a steady step are never the best.
constexpr RankedFigure kSteadyStep = {
    "steady step",
    [](const Simulated& s) {
      return s.steady_step.value_or(std::numeric_limits<double>::infinity());
    },
    [](const Simulated& s, const TableUnits& units) {
      return s.steady_step ? units.Time(s.chosen, *s.steady_step) : "-";
    },
    [](const Simulated&) -> std::string { return ""; }, true};

std::vector<RankedFigure> FiguresOf(const std::vector<const Simulated*>& members) {
  const std::span<const RankedFigure> figures = RankedFigures(AnyJitter(members));
  std::vector<RankedFigure> all(figures.begin(), figures.end());
  const bool steady = std::ranges::any_of(
      members, [](const Simulated* each) { return each->steady_step.has_value(); });
  if (steady) all.push_back(kSteadyStep);
  return all;
}

// Numbers as numbers.
Json ValueJson(const std::string& value) {
  if (const auto count = ParseInt(value)) return *count;
  if (const auto number = ParseNumber(value)) return *number;
  return value;
}

}  // namespace

std::string NameOf(const SweepAxis& axis) {
  std::string name = axis.key;
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Table SweepTable(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  Table table;
  for (const SweepAxis& axis : plan.axes()) table.columns.push_back(NameOf(axis));
  table.columns.emplace_back("schedule");
  const std::vector<RankedFigure> figures = FiguresOf(Members(swept));
  for (const RankedFigure& figure : figures) {
    table.columns.emplace_back(figure.column);
    if (figure.ratio) table.columns.emplace_back(kRatioColumn);
  }
  std::map<std::size_t, RowGroup> groups;
  for (std::size_t i = 0; i < swept.size(); ++i) {
    if (!swept[i].simulated) continue;
    RowGroup& group = groups[plan.GroupOf(i)];
    // A blank line between groups.
    if (group.rows.empty() && !table.rows.empty()) {
      table.rows.emplace_back(table.columns.size());
    }
    group.members.push_back(&*swept[i].simulated);
    group.rows.push_back(table.rows.size());
    std::vector<std::string>& row = table.rows.emplace_back();
    for (std::size_t axis = 0; axis < plan.axes().size(); ++axis) {
      row.push_back(plan.axes()[axis].values[plan.ValueOf(i, axis)]);
    }
    row.push_back(swept[i].simulated->chosen.label);
  }
  const TableUnits units = UnitsOf(Members(swept));
  for (const auto& [number, group] : groups) AddFigures(group, figures, units, table);
  return table;
}

std::string CountsText(const std::vector<SweptSchedule>& swept) {
  const auto simulated = std::count_if(swept.begin(), swept.end(), [](const SweptSchedule& each) {
    return each.simulated.has_value();
  });
  const std::size_t skipped = swept.size() - static_cast<std::size_t>(simulated);
  return fmt::format("{} combinations, {} skipped", swept.size(), skipped);
}

std::map<std::string, std::size_t> SkippedReasons(const std::vector<SweptSchedule>& swept) {
  std::map<std::string, std::size_t> reasons;
  for (const SweptSchedule& each : swept) {
    if (!each.simulated) ++reasons[each.skipped];
  }
  return reasons;
}

std::string SkippedText(const std::vector<SweptSchedule>& swept) {
  const std::map<std::string, std::size_t> reasons = SkippedReasons(swept);
  std::string text = CountsText(swept) + (reasons.empty() ? ".\n" : ":\n");
  std::size_t listed = 0;
  for (const auto& [reason, count] : reasons) {
    if (listed++ == kMostReasons) {
      return text +
             fmt::format("  {} more reasons, which --json lists\n", reasons.size() - kMostReasons);
    }
    text += fmt::format("  {}{}\n", reason, count > 1 ? fmt::format(" ({} times)", count) : "");
  }
  return text;
}

std::string LegendText(const SweepPlan& plan, const std::vector<SweptSchedule>& swept,
                       const Table& table) {
  return MarksText(table, plan.schedules().size() > 1) + UnitsText(Members(swept));
}

Json SweptJson(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  Json objects = Json::array();
  for (std::size_t i = 0; i < swept.size(); ++i) {
    if (!swept[i].simulated) continue;
    Json object = ToJson(*swept[i].simulated, false);
    object.erase("per_rank");
    for (std::size_t axis = 0; axis < plan.axes().size(); ++axis) {
      const SweepAxis& swept_axis = plan.axes()[axis];
      if (object.contains(swept_axis.key)) continue;
      object[swept_axis.key] = ValueJson(swept_axis.values[plan.ValueOf(i, axis)]);
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

Json SkippedJson(const SweepPlan& plan, const std::vector<SweptSchedule>& swept) {
  Json objects = Json::array();
  for (std::size_t i = 0; i < swept.size(); ++i) {
    if (swept[i].simulated) continue;
    Json object = {{"schedule", plan.schedules()[plan.ScheduleOf(i)].label()}};
    for (std::size_t axis = 0; axis < plan.axes().size(); ++axis) {
      object[plan.axes()[axis].key] = ValueJson(plan.axes()[axis].values[plan.ValueOf(i, axis)]);
    }
    object["reason"] = swept[i].skipped;
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace penstock
