#include "cli/plan/model_plan.h"

#include <chrono>

#include "base/units.h"
#include "cli/command/command.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/plan/plan_tables.h"
#include "cli/signals/interrupt.h"
#include "plan/figures/outlook_figures.h"
#include "plan/figures/training_figures.h"
#include "plan/search/pricing.h"
#include "report/table.h"
#include "scenario/command_line.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

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

}  // namespace

Result<int> PlanModel(const PlanRequest& request, const std::string& output, OutputFormat format) {
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
  if (!output.empty()) {
    PENSTOCK_TRY(const Schedule schedule, ScheduleOf(answer.best()));
    PENSTOCK_TRY_STATUS(SaveSchedule(schedule, output));
  }
  if (format == OutputFormat::kJson) {
    nlohmann::ordered_json figures = FiguresOf(answer, seconds);
    if (doubts) figures["uncertainty"] = FiguresOf(*outlook);
    PrintObject(figures);
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
             CommandLineOf(answer.best().scenario));
  if (*outlook) fmt::print("\n{}", OutlookText(**outlook));
  return kExitOk;
}

}  // namespace penstock
