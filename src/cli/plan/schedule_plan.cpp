#include "cli/plan/schedule_plan.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/command/command.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/signals/interrupt.h"
#include "plan/schedule/plan_schedule.h"
#include "report/table.h"
#include "scenario/build/params.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBarSteps = 1000;

// When the search found a better schedule.
struct Improvement {
  double seconds = 0, length = 0;
};

double GapOf(double length, double bound) { return bound > 0 ? length / bound - 1 : 0; }

Json ToJson(const PlannedSchedule& planned, double lower_bound) {
  Json object;
  object["schedule"] = planned.name;
  object["ranks"] = planned.schedule.ranks();
  object["chunks"] = planned.schedule.placement.chunks();
  object["microbatches"] = planned.schedule.microbatches;
  object["makespan"] = planned.makespan;
  object["peak_memory"] = planned.peak_memory;
  object["lower_bound"] = lower_bound;
  object["gap"] = GapOf(planned.length, lower_bound);
  return object;
}

Json ToJson(const SchedulePlan& plan, const std::vector<Improvement>& improvements, double seconds,
            const std::string& output) {
  Json object;
  object["best"] = ToJson(plan.best(), plan.lower_bound);
  object["best"]["placement_bound"] = plan.best().placement_bound;
  if (!output.empty()) object["best"]["csv"] = output;
  object["front"] = Json::array();
  for (const PlannedSchedule& planned : plan.front) {
    object["front"].push_back(ToJson(planned, planned.lower_bound));
  }
  object["searched"] = plan.searches;
  object["stopped"] = plan.stopped;
  object["seconds"] = seconds;
  object["improvements"] = Json::array();
  for (const Improvement& one : improvements) {
    if (!(one.length > plan.best().length)) break;
    object["improvements"].push_back({{"seconds", one.seconds}, {"length", one.length}});
  }
  const auto reached = std::ranges::find_if(
      improvements, [&](const Improvement& one) { return one.length <= plan.best().length; });
  object["improvements"].push_back(
      {{"seconds", reached != improvements.end() ? reached->seconds : seconds},
       {"length", plan.best().length}});
  return object;
}

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

Result<int> PlanSchedules(const Scenario& scenario, const std::vector<int>& chunks,
                          const std::string& output, OutputFormat format) {
  ScheduleQuestion question;
  PENSTOCK_TRY(question.params, ParamsOf(scenario));
  // A pair is no gain unless the user says so: without a model, nothing is known of it.
  if (!scenario.overlap) question.params.overlap = {OverlapRule::Kind::kSum};
  if (!chunks.empty()) question.chunks = chunks;
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
  if (!output.empty()) PENSTOCK_TRY_STATUS(SaveSchedule(plan.best().schedule, output));
  if (format == OutputFormat::kJson) {
    PrintObject(ToJson(plan, improvements, seconds(), output));
    return kExitOk;
  }
  const Table table = FrontTable(plan);
  if (format == OutputFormat::kCsv) {
    fmt::print("{}", FormatTableCsv(table));
    return kExitOk;
  }
  fmt::print("{}no schedule of these placements takes less than {}\n", FormatTable(table),
             FormatNumber(plan.lower_bound));
  if (!output.empty()) fmt::print("{}: {}\n", output, plan.best().name);
  return kExitOk;
}

}  // namespace penstock
