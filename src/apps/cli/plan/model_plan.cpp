#include "cli/plan/model_plan.h"

#include <chrono>

#include "base/units.h"
#include "cli/command/command.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/plan/plan_page.h"
#include "cli/plan/plan_tables.h"
#include "cli/signals/interrupt.h"
#include "plan/export/plan_files.h"
#include "plan/figures/outlook_figures.h"
#include "plan/figures/training_figures.h"
#include "plan/search/pricing.h"
#include "report/table.h"
#include "scenario/command_line.h"
#include "scenario/spelling.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

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
  Json figures = FiguresOf(answer, seconds);
  if (doubts) figures["uncertainty"] = FiguresOf(*outlook);
  if (!files.empty()) figures["configs"] = ToJson(files, answer.best());
  const Table front = FrontTable(answer), others = RunnersUpTable(answer);
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
  fmt::print("{}", FormatTable(front));
  if (!others.rows.empty()) fmt::print("\n{}", FormatTable(others));
  PrintCheckpoints(answer.best().estimate);
  fmt::print("\n{} configurations in {}; a device may need {}. The fastest:\n  {}\n",
             answer.searched, FormatSeconds(seconds), FormatAmount(answer.memory_limit, "B"),
             CommandLineOf(answer.best().scenario));
  if (*outlook) fmt::print("\n{}", OutlookText(**outlook));
  Print(files, answer.best());
  if (!output.page.empty()) fmt::print("wrote {}\n", output.page);
  return kExitOk;
}

}  // namespace penstock
