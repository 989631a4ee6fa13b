// What a sweep found, as a table and as JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/table.h"
#include "scenario/sweep/plan.h"
#include "scenario/sweep/run_sweep.h"

namespace penstock {

// One row per schedule that was simulated: the swept values, the schedule and its figures. The best
// of each group are marked, and ratios are to the group's first row.
Table SweepTable(const SweepPlan& plan, const std::vector<SweptSchedule>& swept);

// A key in words: "memory limit".
std::string NameOf(const SweepAxis& axis);
// What the marks and units of the table mean: lines below it.
std::string LegendText(const SweepPlan& plan, const std::vector<SweptSchedule>& swept,
                       const Table& table);
// "24 combinations, 4 skipped"
std::string CountsText(const std::vector<SweptSchedule>& swept);
// Why combinations were skipped, with their numbers.
std::map<std::string, std::size_t> SkippedReasons(const std::vector<SweptSchedule>& swept);
// The counts, and the first reasons.
std::string SkippedText(const std::vector<SweptSchedule>& swept);

// The figures of `simulate --json` with the swept values, but not per rank; one object each.
nlohmann::ordered_json SweptJson(const SweepPlan& plan, const std::vector<SweptSchedule>& swept);
// The swept values of each skipped combination, and the reason.
nlohmann::ordered_json SkippedJson(const SweepPlan& plan, const std::vector<SweptSchedule>& swept);

}  // namespace penstock
