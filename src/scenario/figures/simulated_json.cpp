#include "scenario/figures/simulated_json.h"

#include "scenario/evidence/evidence.h"
#include "scenario/price/step_figures.h"
#include "schedule/text/text.h"

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

// What a step and its largest rank consist of.
Json StepJson(const StepEstimate& step) {
  const PeakBytes* largest = &step.ranks.front();
  for (const PeakBytes& rank : step.ranks) {
    if (rank.total() > largest->total()) largest = &rank;
  }
  return {{"reduce", step.reduce},
          {"update", step.update},
          {"gather", step.gather},
          {"weights", largest->weights},
          {"gradients", largest->gradients},
          {"optimizer", largest->optimizer},
          {"activations", largest->activations},
          {"gathered", largest->gathered},
          {"messages", largest->messages},
          {"workspace", largest->workspace},
          {"others", largest->others},
          {"fragmentation", largest->fragmentation},
          {"context", largest->context}};
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

}  // namespace

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

Json ClosedFormJson(const PricedSchedule& chosen) {
  const ClosedForm form = ClosedFormOf(chosen);
  std::optional<double> bytes;
  if (form.messages) bytes = BytesAMicrobatch(chosen, static_cast<double>(*form.messages));
  return {{"makespan", ToJson(form.makespan)},
          {"bubble", ToJson(form.bubble)},
          {"peak_memory", ToJson(form.peak_memory)},
          {"messages", ToJson(form.messages)},
          {"bytes_per_microbatch", ToJson(bytes)}};
}

void AddUnits(const PricedSchedule& chosen, Json& object) {
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
  if (simulated.step) {
    object["step_time"] = simulated.step->step_time;
    object["tokens_per_second"] = simulated.step->tokens_per_second();
    AddCheckpoints(*simulated.step, object);
    object["devices"] = simulated.step->devices;
    object["idle_devices"] = simulated.step->idle_devices;
    object["tokens_per_second_per_device"] = simulated.step->tokens_per_device();
    object["flops_per_second_per_device"] = simulated.step->flops_per_device();
    object["peak_bytes"] = simulated.step->peak_bytes();
    object["device_bytes"] = simulated.step->device_bytes();
    object["step"] = StepJson(*simulated.step);
    object["measured"] = ToJson(EvidenceOf(*simulated.chosen.model));
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
