#include "cli/plan/schedule_plan.h"

#include <chrono>

#include "cli/command/command.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/plan/plan_page.h"
#include "cli/signals/interrupt.h"
#include "plan/figures/schedule_figures.h"
#include "report/table.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBarSteps = 1000;

Table FrontTable(const SchedulePlan& plan) {
  Table table;
  table.columns = {"schedule", "chunks", "makespan", "peak memory", "above the bound"};
  for (const PlannedSchedule& planned : plan.front) {
    table.rows.push_back({planned.name, fmt::format("{}", planned.schedule.placement.chunks()),
                          fmt::format("{:.6g}", planned.makespan),
                          fmt::format("{:.6g}", planned.peak_memory),
                          FormatPercent(GapOf(planned.length, planned.lower_bound))});
  }
  return table;
}

}  // namespace

Result<int> PlanSchedules(const PlanRequest& request, const PlanOutput& output) {
  PENSTOCK_TRY(ScheduleQuestion question, ScheduleQuestionOf(request));
  const std::atomic<bool>& interrupt = CatchInterrupt();
  question.stop = [&] { return interrupt.load(); };
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::vector<Improvement> improvements;
  question.improved = [&](double length) { improvements.push_back({seconds(), length}); };
  ProgressBar bar(kBarSteps);
  question.progress = [&](double part) {
    bar.Show(static_cast<std::size_t>(part * static_cast<double>(kBarSteps)));
  };
  auto planned = PlanSchedule(question);
  ReleaseInterrupt();
  PENSTOCK_TRY(const SchedulePlan plan, std::move(planned));
  if (!output.csv.empty()) PENSTOCK_TRY_STATUS(SaveSchedule(plan.best().schedule, output.csv));
  nlohmann::ordered_json figures = FiguresOf(plan, improvements, seconds());
  if (!output.csv.empty()) figures["best"]["csv"] = output.csv;
  const Table table = FrontTable(plan);
  if (!output.page.empty()) {
    PENSTOCK_TRY_STATUS(WriteSchedulePage(question, request, plan, {figures, {table}, output}));
  }
  if (output.format == OutputFormat::kJson) {
    PrintObject(figures);
    return kExitOk;
  }
  if (output.format == OutputFormat::kCsv) {
    fmt::print("{}", FormatTableCsv(table));
    return kExitOk;
  }
  fmt::print("{}no schedule of these placements takes less than {}\n", FormatTable(table),
             FormatNumber(plan.lower_bound));
  if (!output.csv.empty()) fmt::print("{}: {}\n", output.csv, plan.best().name);
  if (!output.page.empty()) fmt::print("wrote {}\n", output.page);
  return kExitOk;
}

}  // namespace penstock
