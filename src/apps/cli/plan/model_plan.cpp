#include "cli/plan/model_plan.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/text/numbers.h"
#include "base/units.h"
#include "cli/command/command.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/output/terminal.h"
#include "cli/plan/plan_page.h"
#include "cli/signals/interrupt.h"
#include "plan/export/plan_files.h"
#include "plan/figures/outlook_figures.h"
#include "plan/figures/training_figures.h"
#include "plan/search/pricing.h"
#include "plan/search/search.h"
#include "plan/uncertainty/outlook.h"
#include "report/table.h"
#include "scenario/command_line.h"
#include "scenario/evidence/evidence.h"
#include "scenario/spelling.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

std::string NameOf(const TrainingPlan& plan) { return WordOf(plan.scenario.schedules.front()); }

const std::vector<std::string> kDivisionColumns = {
    "tensor", "pipeline",   "context",   "data",     "expert",
    "zero",   "microbatch", "recompute", "schedule", "priced as"};

// The implementation, with the kernels of experts that were chosen.
std::string KernelsOf(const TrainingPlan& plan) {
  std::string text = plan.implementation();
  if (plan.division.dispatcher) {
    text += fmt::format(", {}", plan.scenario.dispatcher.value_or(""));
  }
  if (plan.division.graphs_layers) text += ", CUDA graphs";
  if (plan.division.overlaps_experts) text += ", overlapped experts";
  return text;
}

std::vector<std::string> DivisionCells(const TrainingPlan& plan) {
  const JobDivision& division = plan.division;
  std::vector<std::string> cells;
  for (const int count : {division.tensor, division.pipeline, division.context, division.data,
                          division.expert, division.zero, division.micro_batch}) {
    cells.push_back(fmt::format("{}", count));
  }
  constexpr std::size_t kContextCell = 2;
  if (division.context > 1 && plan.scenario.context_exchange) {
    cells[kContextCell] += ", " + *plan.scenario.context_exchange;
  }
  cells.push_back(division.recompute);
  if (plan.scenario.optimizer_states) {
    cells.back() += fmt::format(", states in {}", *plan.scenario.optimizer_states);
  }
  if (plan.scenario.offloaded_states) {
    cells.back() +=
        fmt::format(", {} of states on the host", FormatPercent(*plan.scenario.offloaded_states));
  }
  if (division.gather_again) cells.back() += ", gathered again";
  if (division.offloaded_layers > 0) {
    cells.back() += fmt::format(", {} layers offloaded", division.offloaded_layers);
  }
  cells.push_back(NameOf(plan));
  if (division.precision) cells.back() += " in " + *plan.scenario.precision;
  if (plan.scenario.across_sites) cells.back() += " across sites: " + *plan.scenario.across_sites;
  cells.push_back(KernelsOf(plan));
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

Table FrontTable(const PlanAnswer& answer, const TrainingRun& run) {
  Table table;
  table.title = "Fastest plans for the memory they need";
  table.columns = kDivisionColumns;
  for (const char* column : {"step", "tokens/s", "MFU", "bubble", "memory", "above the bound"}) {
    table.columns.emplace_back(column);
  }
  if (run.tokens > 0) table.columns.emplace_back("days");
  if (run.price_per_hour > 0) table.columns.emplace_back("cost");
  double longest = 0;
  for (const TrainingPlan& plan : answer.front) longest = std::max(longest, plan.step_time());
  const AmountFormat time = FormatLike(longest, "s");
  for (const TrainingPlan& plan : answer.front) {
    std::vector<std::string> cells = DivisionCells(plan);
    cells.push_back(time(plan.step_time()));
    cells.push_back(fmt::format("{:.0f}", plan.estimate.tokens_per_second()));
    cells.push_back(FormatPercent(MfuOf(plan)));
    cells.push_back(FormatPercent(plan.bubble()));
    cells.push_back(FormatAmount(plan.bytes(), "B"));
    cells.push_back(FormatPercent(plan.step_time() / plan.lower_bound - 1));
    if (run.tokens > 0) cells.push_back(fmt::format("{:.1f}", run.days(plan.estimate)));
    if (run.price_per_hour > 0) cells.push_back(fmt::format("{:.0f}", run.cost(plan.estimate)));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// What the other plans lose by.
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

// How often the choice and others win, what each constant would settle, and what to measure.
std::string OutlookText(const Outlook& outlook) {
  std::string text = TableText(CandidateTable(outlook));
  if (!outlook.constants.empty()) text += "\n" + TableText(ConstantTable(outlook));
  return text + Verdict(outlook);
}

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSteps = 1000;

void PrintCheckpoints(const StepEstimate& estimate) {
  if (!estimate.checkpoints) return;
  fmt::print("\nWith a checkpoint every {} steps ({}), {} of the time trains: {:.0f} tokens/s.\n",
             estimate.checkpoints->steps,
             FormatSeconds(static_cast<double>(estimate.checkpoints->steps) * estimate.step_time),
             FormatPercent(estimate.checkpoints->training_part),
             estimate.expected_tokens_per_second());
}

void PrintRun(const TrainingRun& run, const PlanRequest& request, const StepEstimate& estimate) {
  if (run.tokens == 0) return;
  fmt::print("\n{} tokens take the fastest plan {:.1f} days", *request.tokens, run.days(estimate));
  if (run.price_per_hour > 0) {
    fmt::print(" and cost {:.0f}: {} devices at {} per hour", run.cost(estimate), estimate.devices,
               FormatNumber(run.price_per_hour));
  }
  fmt::print(".\n");
}

std::string ReasonOf(const PlanFile& file, const TrainingPlan& plan) {
  return Spell(*file.reason, plan.scenario, OptionOf).line();
}

Json ToJson(const std::vector<PlanFile>& files, const TrainingPlan& plan) {
  Json list = Json::array();
  for (const PlanFile& file : files) {
    Json object = {{"framework", file.framework}};
    object["file"] = file.reason ? Json() : Json(file.path);
    if (file.reason) object["reason"] = ReasonOf(file, plan);
    list.push_back(std::move(object));
  }
  return list;
}

void Print(const std::vector<PlanFile>& files, const TrainingPlan& plan) {
  if (!files.empty()) fmt::print("\n");
  for (const PlanFile& file : files) {
    fmt::print("{}: {}\n", file.framework,
               file.reason ? "not written: " + ReasonOf(file, plan) : file.path);
  }
}

// Writes what is asked for of the fastest plan. Returns its configurations.
Result<std::vector<PlanFile>> Write(const TrainingPlan& plan, const PlanOutput& output) {
  if (!output.csv.empty()) {
    PENSTOCK_TRY(const PricedSchedule built, BuildPlan(plan));
    PENSTOCK_TRY_STATUS(SaveSchedule(built.schedule, output.csv));
  }
  if (output.configs.empty()) return std::vector<PlanFile>();
  return WritePlanFiles(plan, output.configs);
}

}  // namespace

Result<int> PlanModel(const PlanRequest& request, const PlanOutput& output) {
  PENSTOCK_TRY(PlanQuestion question, ModelQuestionOf(request));
  PENSTOCK_TRY(const TrainingRun run, TrainingRunOf(request));
  PENSTOCK_TRY(std::optional<OutlookQuestion> doubts, OutlookQuestionOf(request));
  const std::atomic<bool>& interrupt = CatchInterrupt();
  question.stop = [&] { return interrupt.load(); };
  ProgressBar bar(kSteps);
  question.progress = [&](double part) {
    bar.Show(static_cast<std::size_t>(part * static_cast<double>(kSteps)));
  };
  const Clock::time_point begin = Clock::now();
  auto searched = SearchPlans(question);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Result<std::optional<Outlook>> outlook;
  if (searched && doubts) {
    doubts->stop = question.stop;
    outlook = OutlookOf(*searched, *doubts);
  }
  ReleaseInterrupt();
  PENSTOCK_TRY(const PlanAnswer answer, std::move(searched));
  if (!outlook) return tl::unexpected(std::move(outlook).error());
  PENSTOCK_TRY(const std::vector<PlanFile> files, Write(answer.best(), output));
  Json figures = FiguresOf(answer, seconds, run);
  if (doubts) figures["uncertainty"] = FiguresOf(*outlook);
  if (!files.empty()) figures["configs"] = ToJson(files, answer.best());
  const Table front = FrontTable(answer, run), others = RunnersUpTable(answer);
  if (!output.page.empty()) {
    PENSTOCK_TRY_STATUS(WriteModelPage(question, answer, {figures, {front, others}, output}));
  }
  if (output.format == OutputFormat::kJson) {
    PrintObject(figures);
    return kExitOk;
  }
  if (output.format == OutputFormat::kCsv) {
    fmt::print("{}", FormatTableCsv(front));
    return kExitOk;
  }
  fmt::print("{}", TableText(front));
  if (!others.rows.empty()) fmt::print("\n{}", TableText(others));
  PrintCheckpoints(answer.best().estimate);
  PrintRun(run, request, answer.best().estimate);
  fmt::print("\n{} configurations in {}; a device may need {}. The fastest:\n  {}\n",
             answer.searched, FormatSeconds(seconds), FormatAmount(answer.memory_limit, "B"),
             CommandLineOf(answer.best().scenario));
  if (const auto model = answer.best().scenario.Load()) {
    fmt::print("{}\n", EvidenceOf(*model).Text());
  }
  if (*outlook) fmt::print("\n{}", OutlookText(**outlook));
  Print(files, answer.best());
  if (!output.page.empty()) fmt::print("wrote {}\n", output.page);
  return kExitOk;
}

}  // namespace penstock
