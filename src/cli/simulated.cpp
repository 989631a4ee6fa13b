#include "cli/simulated.h"

#include <utility>

#include "schedule/text.h"

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

}  // namespace

Result<std::vector<Simulated>> SimulateChosen(const ScheduleOptions& options, bool with_timeline) {
  PENSTOCK_TRY(std::vector<ChosenSchedule> chosen, options.Build());
  std::vector<Simulated> all;
  for (ChosenSchedule& choice : chosen) {
    Simulated simulated;
    simulated.chosen = std::move(choice);
    const SimulateOptions how{.timeline = with_timeline ? &simulated.timeline : nullptr};
    PENSTOCK_TRY(simulated.result,
                 Simulate(simulated.chosen.schedule, simulated.chosen.costs, how));
    all.push_back(std::move(simulated));
  }
  return all;
}

nlohmann::ordered_json ToJson(const Simulated& simulated, bool with_steps) {
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
                 {"actions", result.actions},
                 {"makespan", result.makespan},
                 {"bubble", result.bubble},
                 {"span_bubble", result.span_bubble},
                 {"peak_memory", result.peak_memory},
                 {"messages", result.messages},
                 {"per_rank", std::move(per_rank)}};
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
  if (schedule.cuts > 1) text += fmt::format(", {} cuts", schedule.cuts);
  return text;
}

}  // namespace penstock
