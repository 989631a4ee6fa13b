#include "cli/plan/plan_page.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/system/on_all_cores.h"
#include "base/text/shell_word.h"
#include "base/units.h"
#include "cli/options/scenario_options.h"
#include "plan/search/pricing.h"
#include "report/front_page.h"
#include "report/page/page_data.h"
#include "scenario/figures/report_run.h"
#include "scenario/price/simulated.h"
#include "schedule/pairs.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// The timelines of a page: browsers load so much in less than a second, and people can mail it.
// More actions are not simulated; how many bytes an action takes depends on its memory and
// messages.
constexpr std::size_t kMostBytes = 11'000'000;
constexpr std::size_t kMostActions = 300'000;

// The plans with a timeline: the first one, then the others in their order while there is room.
std::vector<std::size_t> PlansWithTimeline(const FrontPage& page,
                                           const std::vector<PricedSchedule>& schedules) {
  std::vector<std::size_t> order(page.plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(page.first),
              order.begin() + static_cast<std::ptrdiff_t>(page.first) + 1);
  std::size_t actions = 0;
  std::erase_if(order, [&](std::size_t i) {
    const std::size_t own = schedules[i].schedule.action_count();
    if (actions + own > kMostActions) return true;
    actions += own;
    return false;
  });
  return order;
}

// Simulates the schedules of the plans that have a timeline. `missing` of a plan says how to get
// one elsewhere.
Result<std::vector<Simulated>> SimulatePlans(FrontPage& page,
                                             std::vector<PricedSchedule> schedules) {
  const std::vector<std::size_t> shown = PlansWithTimeline(page, schedules);
  for (std::size_t i = 0; i < page.plans.size(); ++i) {
    const std::string elsewhere = std::move(page.plans[i].missing);
    page.plans[i].missing = fmt::format(
        "The timelines of a page take at most {} MB; this one has no room with its {} "
        "actions. {}",
        kMostBytes / 1'000'000, schedules[i].schedule.action_count(), elsewhere);
  }
  std::vector<Result<Simulated>> results(shown.size());
  OnAllCores(shown.size(), [&](std::size_t i) {
    results[i] = SimulateOne(std::move(schedules[shown[i]]), true);
  });
  std::vector<Simulated> simulated;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    PENSTOCK_TRY(Simulated one, std::move(results[i]));
    simulated.push_back(std::move(one));
    page.plans[shown[i]].run = i;
  }
  AddMemory(simulated);
  return simulated;
}

// Leaves out timelines that would make the page too large. The first ones stay.
void LimitSize(FrontPage& page) {
  ReportInput& report = page.report;
  std::vector<std::optional<std::size_t>> place(report.runs.size());
  std::vector<ReportRun> kept;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const std::size_t own = RunDataSize(report, report.runs[i]);
    if (bytes + own > kMostBytes) continue;
    bytes += own;
    place[i] = kept.size();
    kept.push_back(std::move(report.runs[i]));
  }
  report.runs = std::move(kept);
  for (FrontPlan& plan : page.plans) {
    if (plan.run) plan.run = place[*plan.run];
  }
}

Status WritePage(FrontPage page, std::vector<PricedSchedule> schedules, PlanPageParts parts) {
  PENSTOCK_TRY(const std::vector<Simulated> simulated, SimulatePlans(page, std::move(schedules)));
  ReportInput& report = page.report;
  report.runs.resize(simulated.size());
  for (std::size_t i = 0; i < page.plans.size(); ++i) {
    FrontPlan& plan = page.plans[i];
    if (plan.run) {
      const Simulated& own = simulated[*plan.run];
      report.runs[*plan.run] = RunOf(own, NumberedPlan(i), own.chosen.schedule);
      if (page.memory_limit) report.runs[*plan.run].memory_limit = page.memory_limit;
    }
  }
  LimitSize(page);
  for (FrontPlan& plan : page.plans) {
    if (plan.run || plan.csv.empty()) continue;
    plan.csv.clear();  // as large as the timeline
    plan.command.clear();
  }
  if (!simulated.empty()) report.schedule = &simulated.front().chosen.schedule;
  report.tables = std::move(parts.tables);
  report.passages.push_back({"Command", parts.output.command, true});
  return WriteFront(page, parts.output.page);
}

// The figures as --json prints them. The command stands alone.
std::vector<std::pair<std::string, std::string>> UnroundedFigures(const Json& plan) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& [key, value] : plan.items()) {
    if (key == "command") continue;
    values.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return values;
}

// "zbv, 2 chunks, tensor 4, pipeline 2, recompute full"
std::string NameOfModelPlan(const Json& plan) {
  auto name = plan.at("schedule").get<std::string>();
  const int chunks = plan.at("chunks").get<int>();
  if (chunks > 1) name += fmt::format(", {} chunks", chunks);
  for (const char* const key : {"tensor", "pipeline", "context", "data", "expert"}) {
    const int count = plan.at(key).get<int>();
    if (count > 1) name += fmt::format(", {} {}", key, count);
  }
  const auto recompute = plan.at("recompute").get<std::string>();
  if (recompute != "none") name += ", recompute " + recompute;
  const int offloaded = plan.at("offloaded_layers").get<int>();
  if (offloaded > 0) name += fmt::format(", {} layers offloaded", offloaded);
  const auto precision = plan.at("precision").get<std::string>();
  if (precision != "bf16") name += " in " + precision;
  return name;
}

FrontPlan ModelPlan(const Json& plan, bool in_front) {
  FrontPlan shown;
  shown.name = NameOfModelPlan(plan);
  shown.in_front = in_front;
  if (!in_front) shown.note = plan.at("why_not").get<std::string>();
  shown.time = plan.at("step_time").get<double>();
  shown.memory = plan.at("peak_bytes").get<double>();
  shown.command = plan.at("command").get<std::string>();
  shown.values = UnroundedFigures(plan);
  const std::string bound =
      in_front ? FormatPercent(plan.at("gap").get<double>()) + " above its lower bound" : "";
  shown.figures = {
      {"step time", FormatLike(shown.time, "s")(shown.time), bound},
      {"throughput", fmt::format("{:.0f}", plan.at("tokens_per_second").get<double>()), "tokens/s"},
      {"MFU", FormatPercent(plan.at("mfu").get<double>()), ""},
      {"bubble", FormatPercent(plan.at("bubble").get<double>()), "of the pipeline"},
      {"memory", FormatAmount(shown.memory, "B"), "of the worst rank"}};
  const std::string words = shown.command.substr(std::string("penstock simulate").size());
  shown.missing = "This draws it: penstock report" + words + " -o timeline.html";
  return shown;
}

// The value of a field; empty if it is not given.
std::string TextOfField(std::string_view name, const Scenario& scenario) {
  const ScenarioField& field = *FindField(name);
  return IsGiven(field, scenario) ? TextOf(field, scenario) : "";
}

Result<std::vector<PricedSchedule>> BuildPlans(const std::vector<const TrainingPlan*>& plans) {
  std::vector<Result<PricedSchedule>> built(plans.size());
  OnAllCores(plans.size(), [&](std::size_t i) { built[i] = BuildPlan(*plans[i]); });
  std::vector<PricedSchedule> schedules;
  for (Result<PricedSchedule>& one : built) {
    PENSTOCK_TRY(PricedSchedule schedule, std::move(one));
    schedules.push_back(std::move(schedule));
  }
  return schedules;
}

// Returns the command that simulates the file of a schedule with the costs of the search.
std::string CommandOfFile(const std::string& file, const PlanRequest& request,
                          const Schedule& schedule) {
  const Scenario& scenario = request.scenario;
  std::string command = "penstock simulate " + file;
  if (request.costs) command += " " + ShellWord(*request.costs);
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.group != FieldGroup::kCosts || IsNested(field) || !IsGiven(field, scenario)) continue;
    if (field.name == "memory_limit" || field.name == "overlap") continue;
    command += fmt::format(" {} {}", OptionOf(field.name), TextOf(field, scenario));
  }
  if (HasPairs(schedule)) {
    command += " --overlap " + scenario.overlap.value_or("sum");
  }
  return command;
}

FrontPlan SchedulePlanOf(const PlannedSchedule& planned, const Json& json, std::size_t index,
                         const PlanRequest& request) {
  FrontPlan shown;
  shown.name = planned.name;
  const int chunks = planned.schedule.placement.chunks();
  if (chunks > 1) shown.name += fmt::format(", {} chunks", chunks);
  shown.time = planned.length;
  shown.memory = planned.peak_memory;
  shown.values = UnroundedFigures(json);
  shown.csv_name = fmt::format("plan-{}.csv", index + 1);
  shown.csv = WriteCsv(planned.schedule);
  shown.command = CommandOfFile(shown.csv_name, request, planned.schedule);
  shown.missing = fmt::format("penstock plan --memory-limit {} -o plan.csv writes its schedule.",
                              planned.peak_memory);
  shown.figures = {
      {"makespan", FormatNumber(planned.makespan), "in the unit of the costs"},
      {"lower bound", FormatNumber(planned.lower_bound),
       FormatPercent(json.at("gap").get<double>()) + " above it"},
      {"peak memory", FormatNumber(planned.peak_memory), "activations of one rank and microbatch"}};
  return shown;
}

PricedSchedule PricedOf(const PlannedSchedule& planned, std::optional<double> memory_limit) {
  PricedSchedule priced;
  priced.label = planned.name;
  priced.schedule = planned.schedule;
  priced.costs = planned.costs;
  priced.memory_limit = memory_limit;
  priced.heeds_limit = memory_limit.has_value();
  return priced;
}

}  // namespace

Status WriteModelPage(const PlanQuestion& question, const PlanAnswer& answer, PlanPageParts parts) {
  FrontPage page;
  std::vector<const TrainingPlan*> plans;
  const auto add = [&](const std::vector<TrainingPlan>& all, const Json& json, bool in_front) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      plans.push_back(&all[i]);
      page.plans.push_back(ModelPlan(json.at(i), in_front));
    }
  };
  add(answer.front, parts.json.at("front"), true);
  add(answer.runners_up, parts.json.at("runners_up"), false);
  page.report.title = "Plan of " + TextOfField("model", question.scenario);
  for (const char* const field : {"nodes", "device"}) {
    const std::string text = TextOfField(field, question.scenario);
    if (!text.empty()) page.report.title += (field[0] == 'n' ? " on " : " ") + text;
  }
  page.report.subtitle = fmt::format("{} samples per step; {} configurations of {} divisions{}",
                                     question.global_batch, answer.searched, answer.divisions,
                                     answer.stopped ? ", stopped before the end" : "");
  page.report.time_unit = "s";
  page.report.memory_unit = "B";
  page.time_name = "step time";
  page.memory_name = "memory of the worst rank";
  page.bounds = {{answer.memory_limit, answer.lower_bound}};
  page.memory_limit = answer.memory_limit;
  PENSTOCK_TRY(std::vector<PricedSchedule> schedules, BuildPlans(plans));
  return WritePage(std::move(page), std::move(schedules), std::move(parts));
}

Status WriteSchedulePage(const ScheduleQuestion& question, const PlanRequest& request,
                         const SchedulePlan& plan, PlanPageParts parts) {
  FrontPage page;
  std::vector<PricedSchedule> schedules;
  for (std::size_t i = 0; i < plan.front.size(); ++i) {
    const PlannedSchedule& planned = plan.front[i];
    page.plans.push_back(SchedulePlanOf(planned, parts.json.at("front").at(i), i, request));
    page.bounds.push_back({planned.peak_memory, planned.lower_bound});
    schedules.push_back(PricedOf(planned, question.params.memory_limit));
  }
  page.first = plan.front.size() - 1;
  const double all = std::numeric_limits<double>::infinity();
  page.bounds.push_back({question.params.memory_limit.value_or(all), plan.lower_bound});
  page.memory_limit = question.params.memory_limit;
  const bool is_span = question.params.objective == Objective::kSpan;
  page.time_name = is_span ? "longest span of a rank" : "makespan";
  page.memory_name = "peak memory of the worst rank";
  page.report.title = fmt::format("Schedules of {} ranks, {} microbatches", question.params.ranks,
                                  question.params.microbatches);
  page.report.subtitle =
      fmt::format("{} searches{}", plan.searches, plan.stopped ? ", stopped before the end" : "");
  page.report.costs = CostsText(schedules.front());
  parts.tables.front().title = "Shortest schedules for the memory they need";
  return WritePage(std::move(page), std::move(schedules), std::move(parts));
}

}  // namespace penstock
