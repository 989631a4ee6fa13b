#include "cli/plan/model_plan.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/command/command.h"
#include "cli/figures/simulated_json.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/signals/interrupt.h"
#include "report/table.h"
#include "scenario/build/build.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSteps = 1000;

// Returns the text as a word of a shell.
std::string ShellWord(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

std::string NameOf(const TrainingPlan& plan) {
  std::string name = plan.schedule;
  for (const auto& [key, value] : plan.scenario.schedules.front().options) {
    name += fmt::format(":{}={}", key, value);
  }
  return name;
}

// Part of the peak of the devices that matmuls of the precision have.
double MfuOf(const TrainingPlan& plan) {
  const auto model = plan.scenario.Load();
  if (!model) return 0;
  const double peak = model->cluster.mean_flops(model->batch.precision);
  return peak > 0 ? plan.estimate.flops_per_device() / peak : 0;
}

// Returns the command that simulates the plan.
std::string CommandOf(const TrainingPlan& plan) {
  std::string command = "penstock simulate " + NameOf(plan);
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, plan.scenario) || IsNested(field)) continue;
    command += fmt::format(" {}={}", OptionOf(field.name), ShellWord(TextOf(field, plan.scenario)));
  }
  return command;
}

Json ToJson(const TrainingPlan& plan) {
  const JobDivision& division = plan.division;
  Json object = {
      {"tensor", division.tensor},
      {"pipeline", division.pipeline},
      {"chunks", plan.chunks},
      {"context", division.context},
      {"data", division.data},
      {"expert", division.expert},
      {"expert_tensor", division.expert_tensor > 0 ? division.expert_tensor : division.tensor},
      {"zero", division.zero},
      {"micro_batch", division.micro_batch},
      {"microbatches", division.microbatches},
      {"schedule", plan.schedule},
      {"slices", plan.slices},
      {"recompute", division.recompute},
      {"layout", plan.scenario.layout ? Json(*plan.scenario.layout) : Json()},
      {"step_time", plan.step_time()},
      {"tokens_per_second", plan.estimate.tokens_per_second()},
      {"mfu", MfuOf(plan)},
      {"bubble", plan.bubble()},
      {"peak_bytes", plan.bytes()},
      {"lower_bound", plan.lower_bound},
      {"gap", plan.lower_bound > 0 ? plan.step_time() / plan.lower_bound - 1 : 0},
      {"command", CommandOf(plan)}};
  if (plan.scenario.across_sites) object["across_sites"] = *plan.scenario.across_sites;
  AddCheckpoints(plan.estimate, object);
  return object;
}

Json ToJson(const PlanAnswer& answer, double seconds) {
  Json front = Json::array(), runners_up = Json::array();
  for (const TrainingPlan& plan : answer.front) front.push_back(ToJson(plan));
  for (const TrainingPlan& plan : answer.runners_up) {
    Json object = ToJson(plan);
    object["why_not"] = WhyNot(plan, answer.best());
    object.erase("lower_bound");
    object.erase("gap");
    runners_up.push_back(std::move(object));
  }
  return {{"best", ToJson(answer.best())},
          {"front", std::move(front)},
          {"runners_up", std::move(runners_up)},
          {"lower_bound", answer.lower_bound},
          {"memory_limit", answer.memory_limit},
          {"divisions", answer.divisions},
          {"searched", answer.searched},
          {"stopped", answer.stopped},
          {"seconds", seconds}};
}

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

void PrintCheckpoints(const StepEstimate& estimate) {
  if (!estimate.checkpoints) return;
  fmt::print("\nWith a checkpoint every {} steps ({}), {} of the time trains: {:.0f} tokens/s.\n",
             estimate.checkpoints->steps,
             FormatSeconds(static_cast<double>(estimate.checkpoints->steps) * estimate.step_time),
             FormatPercent(estimate.checkpoints->training_part),
             estimate.expected_tokens_per_second());
}

Status WriteSchedule(const TrainingPlan& plan, const std::string& output) {
  const Candidate& candidate = plan.scenario.schedules.front();
  PENSTOCK_TRY(const Scenario own, ScenarioOf(plan.scenario, candidate));
  PENSTOCK_TRY(const PricedSchedule chosen, BuildOne(own, candidate, {}));
  return SaveSchedule(chosen.schedule, output);
}

}  // namespace

Result<int> PlanModel(PlanQuestion question, const std::string& output, OutputFormat format) {
  const std::atomic<bool>& interrupt = CatchInterrupt();
  question.stop = [&] { return interrupt.load(); };
  ProgressBar bar(kSteps);
  question.progress = [&](double part) {
    bar.Show(static_cast<std::size_t>(part * static_cast<double>(kSteps)));
  };
  const Clock::time_point begin = Clock::now();
  auto searched = SearchPlans(question);
  ReleaseInterrupt();
  PENSTOCK_TRY(const PlanAnswer answer, std::move(searched));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!output.empty()) PENSTOCK_TRY_STATUS(WriteSchedule(answer.best(), output));
  if (format == OutputFormat::kJson) {
    PrintObject(ToJson(answer, seconds));
    return kExitOk;
  }
  const Table front = FrontTable(answer);
  if (format == OutputFormat::kCsv) {
    fmt::print("{}", FormatTableCsv(front));
    return kExitOk;
  }
  fmt::print("{}", FormatTable(front));
  if (!answer.runners_up.empty()) fmt::print("\n{}", FormatTable(RunnersUpTable(answer)));
  PrintCheckpoints(answer.best().estimate);
  fmt::print("\n{} configurations in {}; a device may need {}. The fastest:\n  {}\n",
             answer.searched, FormatSeconds(seconds), FormatAmount(answer.memory_limit, "B"),
             CommandOf(answer.best()));
  return kExitOk;
}

}  // namespace penstock
