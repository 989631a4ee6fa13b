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
  if (division.offloaded_layers > 0) {
    cells.back() += fmt::format(", {} layers offloaded", division.offloaded_layers);
  }
  cells.push_back(NameOf(plan));
  if (division.precision) cells.back() += " in " + *plan.scenario.precision;
  if (plan.scenario.across_sites) cells.back() += " across sites: " + *plan.scenario.across_sites;
  return cells;
}

constexpr std::size_t kListedCandidates = 8;

Table CandidateTable(const Outlook& outlook) {
  Table table;
  table.title = fmt::format("The choice, and how often others win in {} samples of the constants",
                            outlook.samples);
  table.columns = kDivisionColumns;
  for (const char* column : {"wins", "mean step", "expected regret", "worst regret"}) {
    table.columns.emplace_back(column);
  }
  for (const Outlook::Candidate& each : outlook.candidates) {
    if (table.rows.size() == kListedCandidates) break;
    if (each.regret.wins == 0 && !table.rows.empty()) break;  // the others win less often
    std::vector<std::string> cells = DivisionCells(each.plan);
    cells.push_back(fmt::format("{}", each.regret.wins));
    cells.push_back(FormatSeconds(each.regret.mean_time));
    cells.push_back(FormatPercent(each.regret.expected));
    cells.push_back(FormatPercent(each.regret.worst));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table ConstantTable(const Outlook& outlook) {
  Table table;
  table.title = "Expected regret that is left if one constant is known";
  table.columns = {"constant", "standard deviation", "from", "regret left"};
  for (const Outlook::Constant& each : outlook.constants) {
    table.rows.push_back({std::string(each.constant.name), FormatPercent(each.constant.error),
                          each.constant.source, FormatPercent(each.regret_left)});
  }
  return table;
}

std::string Verdict(const Outlook& outlook) {
  const CandidateRegret& choice = outlook.choice().regret;
  const double least = outlook.safest().regret.expected;
  std::string text = fmt::format("The choice wins {} of {} samples; its expected regret is {}.\n",
                                 choice.wins, outlook.samples, FormatPercent(choice.expected));
  if (&outlook.safest() != &outlook.choice()) {
    text += fmt::format("Least expected regret, {}: {}\n", FormatPercent(least),
                        CommandLineOf(outlook.safest().plan.scenario));
  }
  if (const Outlook::Constant* const decisive = outlook.decisive()) {
    text += fmt::format(
        "Measure {} (calibrate --fit {}): {}. It leaves {} of the expected regret of {}.\n",
        decisive->constant.name, decisive->constant.name, decisive->constant.measurement,
        FormatPercent(decisive->regret_left), FormatPercent(least));
  } else {
    text += "No measurement of one constant would settle more.\n";
  }
  return text;
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

std::string OutlookText(const Outlook& outlook) {
  std::string text = FormatTable(CandidateTable(outlook));
  if (!outlook.constants.empty()) text += "\n" + FormatTable(ConstantTable(outlook));
  return text + Verdict(outlook);
}

}  // namespace penstock
