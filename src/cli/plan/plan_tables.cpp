#include "cli/plan/plan_tables.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/units.h"
#include "plan/figures/training_figures.h"
#include "scenario/command_line.h"

namespace penstock {
namespace {

std::string NameOf(const TrainingPlan& plan) { return WordOf(plan.scenario.schedules.front()); }

const std::vector<std::string> kDivisionColumns = {"tensor",     "pipeline",  "context",
                                                   "data",       "expert",    "zero",
                                                   "microbatch", "recompute", "schedule"};

std::vector<std::string> DivisionCells(const TrainingPlan& plan) {
  const JobDivision& division = plan.division;
  std::vector<std::string> cells;
  for (const int count : {division.tensor, division.pipeline, division.context, division.data,
                          division.expert, division.zero, division.micro_batch}) {
    cells.push_back(fmt::format("{}", count));
  }
  cells.push_back(division.recompute);
  cells.push_back(NameOf(plan));
  if (plan.scenario.across_sites) cells.back() += " across sites: " + *plan.scenario.across_sites;
  return cells;
}

}  // namespace

Table FrontTable(const PlanAnswer& answer) {
  Table table;
  table.title = "Fastest plans for the memory they need";
  table.columns = kDivisionColumns;
  for (const char* column : {"step", "tokens/s", "MFU", "bubble", "memory", "above the bound"}) {
    table.columns.emplace_back(column);
  }
  for (const TrainingPlan& plan : answer.front) {
    std::vector<std::string> cells = DivisionCells(plan);
    cells.push_back(FormatSeconds(plan.step_time()));
    cells.push_back(fmt::format("{:.0f}", plan.estimate.tokens_per_second()));
    cells.push_back(FormatPercent(MfuOf(plan)));
    cells.push_back(FormatPercent(plan.bubble()));
    cells.push_back(FormatAmount(plan.bytes(), "B"));
    cells.push_back(FormatPercent(plan.step_time() / plan.lower_bound - 1));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table RunnersUpTable(const PlanAnswer& answer) {
  Table table;
  table.title = "Why others lose";
  table.columns = kDivisionColumns;
  table.columns.emplace_back("slower by");
  for (const TrainingPlan& plan : answer.runners_up) {
    std::vector<std::string> cells = DivisionCells(plan);
    cells.push_back(WhyNot(plan, answer.best()));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace penstock
