#include "playground/answer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/bound/makespan_bound.h"
#include "report/page/page_data.h"
#include "report/page/page_parts.h"
#include "report/page/timeline_card.h"
#include "report/palette.h"
#include "scenario/command_line.h"
#include "scenario/figures/report_run.h"
#include "scenario/figures/simulated_json.h"
#include "schedule/pairs.h"
#include "schedule/text/text.h"

namespace penstock::playground {
namespace {

Json FiguresOf(const Simulated& simulated) {
  Json figures = Json::array();
  for (const KeyFigure& figure : KeyFiguresOf(simulated)) {
    figures.push_back({{"name", figure.name}, {"value", figure.value}, {"note", figure.note}});
  }
  return figures;
}

// By rank: the positions in its lane of the actions that the page draws.
Json DrawnPositions(const Simulated& simulated) {
  Json ranks = Json::array();
  const Schedule& schedule = simulated.chosen.schedule;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    Json positions = Json::array();
    for (std::size_t i = 0; i < schedule.lanes[rank].size(); ++i) {
      if (IsDrawn(schedule.lanes[rank][i], simulated.timeline.spans[rank][i]))
        positions.push_back(i);
    }
    ranks.push_back(std::move(positions));
  }
  return ranks;
}

// The command that prints the same figures.
std::string CommandOf(const Question& question) {
  if (!question.csv) return CommandLineOf(question.scenario);
  Scenario scenario = WithoutShape(question.scenario);
  scenario.schedules = {{Candidate::Kind::kFile, "edited.csv"}};
  return CommandLineOf(scenario);
}

}  // namespace

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ErrorJson(const Error& error) {
  return {{"error", {{"line", error.line()}, {"field", error.parameter}}}};
}

Json FaultsJson(const std::vector<Fault>& faults) {
  Json list = Json::array();
  for (const Fault& fault : faults) {
    list.push_back({{"rank", fault.rank},
                    {"position", fault.position},
                    {"action", fault.action},
                    {"reason", fault.reason},
                    {"line", Line(fault)}});
  }
  return {{"faults", std::move(list)}};
}

std::optional<double> BoundOf(const PricedSchedule& priced) {
  const Schedule& schedule = priced.schedule;
  const bool computes_only = std::ranges::all_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::all_of(lane,
                               [](const Action& action) { return IsCompute(action.first.op); });
  });
  const bool known = computes_only && schedule.slices == 1 && schedule.steps == 1 &&
                     schedule.weights == WeightPolicy::kFlush && priced.costs.by_slice.empty() &&
                     priced.costs.transfers == Costs().transfers;
  if (!known) return std::nullopt;
  const double limit = priced.memory_limit.value_or(std::numeric_limits<double>::infinity());
  Costs costs = priced.costs;
  if (!HasPairs(schedule)) costs.overlap.kind = OverlapRule::Kind::kSum;
  return LengthBound(schedule.placement, costs, schedule.microbatches, limit, Objective::kMakespan);
}

Result<std::string> ShowText(const Question& question, Subject subject) {
  PENSTOCK_TRY(Simulated one, SimulateOne(std::move(subject.priced), true));
  std::vector<Simulated> all;
  all.push_back(std::move(one));
  AddMemory(all);
  const Simulated& simulated = all.front();
  ReportInput input = ReportOf(simulated);
  input.runs = {RunOf(simulated, simulated.chosen.label, simulated.chosen.schedule)};
  const ReportRun& run = input.runs.front();
  Json answer = {{"csv", WriteCsv(subject.schedule)},
                 {"command", CommandOf(question)},
                 {"figures", FiguresOf(simulated)},
                 {"exact", ToJson(simulated, false)},
                 {"above_limit", simulated.above_limit}};
  const auto bound = BoundOf(simulated.chosen);
  answer["bound"] = bound ? Json(*bound) : Json(nullptr);
  answer["legend"] = LegendHtml(input);
  answer["caption"] = CaptionText(input, run);
  answer["unit"] = UnitHtml(input);
  answer["tables"] = TableHtml(UseTable(input, input.runs), "Time of a rank") +
                     TableHtml(RankTable(run.result, input.time_unit, input.memory_unit), "Ranks");
  answer["positions"] = DrawnPositions(simulated);
  std::string text = TextOf(answer);
  text.back() = ',';  // for the closing brace
  return text + "\"page\":" + PageDataJson(input) + "}";
}

}  // namespace penstock::playground
