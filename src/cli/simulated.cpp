#include "cli/simulated.h"

#include <algorithm>
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

// Closed forms of the schedule's algorithm at these parameters; none for a file.
ClosedForm ClosedFormOf(const ChosenSchedule& chosen) {
  if (chosen.algorithm == nullptr || !chosen.algorithm->closed_form) return {};
  return chosen.algorithm->closed_form(chosen.params);
}

std::string Optional(const std::optional<double>& value) {
  return value ? FormatNumber(*value) : "-";
}

}  // namespace

Result<std::vector<Simulated>> SimulateChosen(const ScheduleOptions& options, bool with_timeline) {
  PENSTOCK_TRY(std::vector<ChosenSchedule> chosen, options.Build());
  return SimulateEach(std::move(chosen), with_timeline);
}

Result<std::vector<Simulated>> SimulateEach(std::vector<ChosenSchedule> chosen,
                                            bool with_timeline) {
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

Table ComparisonTable(const std::vector<Simulated>& all) {
  const bool with_forms = std::any_of(all.begin(), all.end(), [](const Simulated& simulated) {
    const ClosedForm form = ClosedFormOf(simulated.chosen);
    return form.makespan || form.peak_memory;
  });
  Table table;
  table.columns = {"schedule", "ranks", "chunks", "microbatches", "actions", "makespan"};
  if (with_forms) table.columns.emplace_back("closed form");
  table.columns.insert(table.columns.end(), {"bubble", "span bubble", "peak memory"});
  if (with_forms) table.columns.emplace_back("closed form");
  table.columns.emplace_back("messages");
  for (const Simulated& simulated : all) {
    const Schedule& schedule = simulated.chosen.schedule;
    const SimulationResult& result = simulated.result;
    const ClosedForm form = ClosedFormOf(simulated.chosen);
    std::vector<std::string> row = {simulated.chosen.label,
                                    fmt::format("{}", schedule.ranks()),
                                    fmt::format("{}", schedule.placement.chunks()),
                                    fmt::format("{}", schedule.microbatches),
                                    fmt::format("{}", result.actions),
                                    FormatNumber(result.makespan)};
    if (with_forms) row.push_back(Optional(form.makespan));
    row.insert(row.end(), {FormatPercent(result.bubble), FormatPercent(result.span_bubble),
                           FormatNumber(result.peak_memory)});
    if (with_forms) row.push_back(Optional(form.peak_memory));
    row.push_back(fmt::format("{}", result.messages));
    table.rows.push_back(std::move(row));
  }
  return table;
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
