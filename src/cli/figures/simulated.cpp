#include "cli/figures/simulated.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "cli/options/simulate_config.h"
#include "schedule/text/text.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json TimeSteps(const Simulated& simulated) {
  Json lanes = Json::array();
  for (std::size_t r = 0; r < simulated.chosen.schedule.lanes.size(); ++r) {
    Json steps = Json::array();
    for (std::size_t i = 0; i < simulated.chosen.schedule.lanes[r].size(); ++i) {
      const Span& span = simulated.timeline.spans[r][i];
      steps.push_back({{"action", ToText(simulated.chosen.schedule.lanes[r][i])},
                       {"start", span.start},
                       {"end", span.end}});
    }
    lanes.push_back(std::move(steps));
  }
  return lanes;
}

// Null where the figure is unknown.
template <class Number>
Json ToJson(const std::optional<Number>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json SpreadJson(const Spread& spread) {
  return {{"mean", spread.mean}, {"median", spread.median}, {"p95", spread.p95}};
}

// Nested, because the columns of a sweep have the names of its keys.
Json JitteredJson(const Simulated& simulated) {
  const MonteCarloOptions& options = *simulated.chosen.jitter;
  return {{"jitter", options.jitter},
          {"seed", options.seed},
          {"runs", options.runs},
          {"makespan", SpreadJson(simulated.jittered->makespan)},
          {"bubble", SpreadJson(simulated.jittered->bubble)},
          {"span_bubble", SpreadJson(simulated.jittered->span_bubble)}};
}

bool HasOverlappedPairs(const Schedule& schedule) {
  return std::any_of(schedule.lanes.begin(), schedule.lanes.end(), [](const Lane& lane) {
    return std::any_of(lane.begin(), lane.end(), [](const Action& each) { return each.is_pair(); });
  });
}

// Whether some rank's peak is above the memory limit, or its peak and states above the memory of
// its device. False without a limit.
bool ExceedsLimit(const ChosenSchedule& chosen, const SimulationResult& result) {
  constexpr double kRounding = 1e-9;
  if (!chosen.device_memory) {
    return chosen.memory_limit && result.peak_memory > *chosen.memory_limit * (1 + kRounding);
  }
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    double held = result.ranks[rank].peak_memory;
    for (const int stage : chosen.schedule.placement.stages_of(static_cast<int>(rank))) {
      const StageCosts& costs = chosen.costs.stages[Index(stage)];
      held += costs.weights + costs.gradients + costs.optimizer;
    }
    if (held > *chosen.device_memory * (1 + kRounding)) return true;
  }
  return false;
}

// The mean message_scale of the tensors that cross ranks.
double MeanScale(const Placement& placement, const Costs& costs) {
  double sum = 0, edges = 0;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int next = placement.next(stage);
    if (next < 0 || placement.rank_of(next) == placement.rank_of(stage)) continue;
    sum += costs.stages[Index(stage)].message_scale;
    ++edges;
  }
  return edges == 0 ? 1 : sum / edges;
}

Simulated MeasuredRun(const ChosenSchedule& chosen, Timeline times) {
  Simulated run;
  run.chosen = chosen;
  run.chosen.label += ", measured";
  run.timeline = std::move(times);
  run.measured = true;
  const Schedule& schedule = run.chosen.schedule;
  run.result = Summarize(schedule, run.timeline);
  const std::vector<MemoryCurve> memory = MemoryOverTime(schedule, run.timeline, chosen.costs);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    run.result.ranks[rank].peak_memory = PeakOf(memory[rank]);
  }
  FillTotals(schedule, run.result);
  run.above_limit = ExceedsLimit(run.chosen, run.result);
  return run;
}

}  // namespace

Result<std::vector<Simulated>> SimulateChosen(ScheduleOptions& options) {
  PENSTOCK_TRY(Choice choice, ChooseSchedules(options));
  return SimulateEach(std::move(choice.schedules), true);
}

Result<Simulated> SimulateOne(ChosenSchedule chosen, bool with_timeline) {
  Simulated simulated;
  simulated.chosen = std::move(chosen);
  const SimulateOptions how{.timeline = with_timeline ? &simulated.timeline : nullptr,
                            .jitter = nullptr,
                            .messages = with_timeline ? &simulated.messages : nullptr};
  const Schedule& schedule = simulated.chosen.schedule;
  PENSTOCK_TRY(simulated.result, Simulate(schedule, simulated.chosen.costs, how));
  simulated.above_limit = ExceedsLimit(simulated.chosen, simulated.result);
  if (simulated.chosen.costs.overlap.kind == OverlapRule::Kind::kMax &&
      HasOverlappedPairs(schedule)) {
    Costs costs = simulated.chosen.costs;
    costs.overlap.kind = OverlapRule::Kind::kSum;
    PENSTOCK_TRY(simulated.overlap_sum, Simulate(schedule, costs));
  }
  if (simulated.chosen.jitter) {
    PENSTOCK_TRY(simulated.jittered,
                 SimulateRuns(schedule, simulated.chosen.costs, *simulated.chosen.jitter));
  }
  return simulated;
}

Result<std::vector<Simulated>> SimulateEach(std::vector<ChosenSchedule> chosen,
                                            bool with_timeline) {
  std::vector<Simulated> all;
  for (ChosenSchedule& choice : chosen) {
    PENSTOCK_TRY(Simulated simulated, SimulateOne(std::move(choice), with_timeline));
    all.push_back(std::move(simulated));
  }
  return all;
}

std::vector<Simulated> WithMeasured(std::vector<Simulated> all) {
  std::vector<Simulated> runs;
  for (Simulated& simulated : all) {
    std::optional<Timeline> times = std::exchange(simulated.chosen.measured, std::nullopt);
    runs.push_back(std::move(simulated));
    if (times) runs.push_back(MeasuredRun(runs.back().chosen, std::move(*times)));
  }
  return runs;
}

Explanation ExplanationOf(const Simulated& simulated) {
  const ChosenSchedule& chosen = simulated.chosen;
  std::optional<MemoryBound> bound;
  if (chosen.memory_limit && chosen.heeds_limit)
    bound.emplace(MemoryBound{chosen.costs, *chosen.memory_limit});
  return Explain(chosen.schedule, simulated.timeline, simulated.messages, bound);
}

ClosedForm ClosedFormOf(const ChosenSchedule& chosen) {
  if (chosen.algorithm == nullptr) return {};
  ClosedForm form = ClosedFormOf(*chosen.algorithm, chosen.params);
  if (form.peak_memory) *form.peak_memory *= chosen.activation;
  return form;
}

double WholeMessages(const ChosenSchedule& chosen, double messages) {
  const ScheduleParams& params = chosen.params;
  return messages / (double{1} * params.microbatches * params.steps * params.slices) *
         chosen.mean_length;
}

std::optional<double> BytesAMicrobatch(const ChosenSchedule& chosen, double messages) {
  if (chosen.costs.message_bytes == 0) return std::nullopt;
  return WholeMessages(chosen, messages) * chosen.params.slices * chosen.costs.message_bytes *
         MeanScale(chosen.schedule.placement, chosen.costs);
}

Json FiguresJson(const Simulated& simulated) {
  const SimulationResult& result = simulated.result;
  return {{"makespan", result.makespan},
          {"bubble", result.bubble},
          {"span_bubble", result.span_bubble},
          {"peak_memory", result.peak_memory},
          {"messages", result.messages},
          {"bytes_per_microbatch",
           ToJson(BytesAMicrobatch(simulated.chosen, static_cast<double>(result.messages)))}};
}

Json ClosedFormJson(const ChosenSchedule& chosen) {
  const ClosedForm form = ClosedFormOf(chosen);
  std::optional<double> bytes;
  if (form.messages) bytes = BytesAMicrobatch(chosen, static_cast<double>(*form.messages));
  return {{"makespan", ToJson(form.makespan)},
          {"bubble", ToJson(form.bubble)},
          {"peak_memory", ToJson(form.peak_memory)},
          {"messages", ToJson(form.messages)},
          {"bytes_per_microbatch", ToJson(bytes)}};
}

void AddUnits(const ChosenSchedule& chosen, Json& object) {
  object["time_unit"] = chosen.time_unit.empty() ? "unit of --cost" : chosen.time_unit;
  object["memory_unit"] = chosen.memory_unit.empty()
                              ? "activations of one rank's share of one microbatch"
                              : chosen.memory_unit;
}

Json SchedulesJson(const std::vector<Simulated>& all, bool with_steps) {
  Json schedules = Json::array();
  for (const Simulated& simulated : all) schedules.push_back(ToJson(simulated, with_steps));
  return schedules;
}

Json ToJson(const Simulated& simulated, bool with_steps) {
  const Schedule& schedule = simulated.chosen.schedule;
  const SimulationResult& result = simulated.result;
  Json per_rank = Json::array();
  for (const RankResult& rank : result.ranks) {
    per_rank.push_back({{"busy", rank.busy},
                        {"first_start", rank.first_start},
                        {"last_end", rank.last_end},
                        {"peak_memory", rank.peak_memory}});
  }
  Json object = {{"schedule", simulated.chosen.label},
                 {"ranks", schedule.ranks()},
                 {"chunks", schedule.placement.chunks()},
                 {"microbatches", schedule.microbatches},
                 {"actions", result.actions}};
  AddUnits(simulated.chosen, object);
  object.update(FiguresJson(simulated));
  if (simulated.overlap_sum) {
    object["overlap_sum"] = {{"makespan", simulated.overlap_sum->makespan},
                             {"bubble", simulated.overlap_sum->bubble},
                             {"span_bubble", simulated.overlap_sum->span_bubble},
                             {"peak_memory", simulated.overlap_sum->peak_memory}};
  }
  if (simulated.jittered) object["jittered"] = JitteredJson(simulated);
  if (simulated.chosen.data > 1) {
    object["global_microbatches"] = std::int64_t{schedule.microbatches} * simulated.chosen.data;
  }
  if (simulated.steady_step) object["steady_step"] = *simulated.steady_step;
  object["closed_form"] = ClosedFormJson(simulated.chosen);
  if (simulated.chosen.memory_limit) {
    object["memory_limit"] = *simulated.chosen.memory_limit;
    object["above_memory_limit"] = simulated.above_limit;
  }
  object["per_rank"] = std::move(per_rank);
  if (with_steps) object["time_steps"] = TimeSteps(simulated);
  return object;
}

std::string ShapeText(const Schedule& schedule) {
  const int chunks = schedule.placement.chunks();
  const int replicas = schedule.placement.replicas();
  std::string text = fmt::format("{} rank{}", schedule.ranks(), schedule.ranks() == 1 ? "" : "s");
  if (chunks > 1) text += fmt::format(", {} chunks", chunks);
  if (replicas > 1) text += fmt::format(", {} replicas", replicas);
  text += fmt::format(", {} microbatch{}", schedule.microbatches,
                      schedule.microbatches == 1 ? "" : "es");
  if (schedule.slices > 1) text += fmt::format(", {} slices", schedule.slices);
  return text;
}

}  // namespace penstock
