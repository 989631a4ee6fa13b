#include "playground/opening.h"

#include <cmath>
#include <utility>

#include "playground/answer.h"
#include "playground/playground.h"
#include "playground/question.h"
#include "report/page/page_data.h"
#include "report/page/timeline_card.h"
#include "scenario/fields.h"
#include "scenario/figures/report_run.h"
#include "scenario/figures/simulated_json.h"
#include "schedule/text/text.h"

namespace penstock::playground {
namespace {

constexpr std::string_view kPlace = R"(<script type="application/json" id="opening">)";

// The page's state (state.js) as the user has asked, or null if the page lacks a field.
Json StateAsAsked(const Scenario& scenario) {
  Json fields = Json::object();
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario)) continue;
    if (!IsOffered(field)) return nullptr;
    const auto* const list = std::get_if<std::vector<std::string> Scenario::*>(&field.member);
    fields[std::string(field.name)] =
        list != nullptr ? Json(scenario.**list) : Json(TextOf(field, scenario));
  }
  return {{"schedule", scenario.schedules.front().name},
          {"fields", std::move(fields)},
          {"stageCosts", nullptr},
          {"csv", nullptr}};
}

Json StageJson(const StageCosts& costs) {
  Json stage;
  const StageCosts usual;
#define STAGE_COST(member, ...) \
  if (costs.member != usual.member) stage[#member] = costs.member;
#include "schedule/stage_costs.def"
#undef STAGE_COST
  stage.update({{"forward", costs.forward},
                {"backward_input", costs.backward_input},
                {"backward_weight", costs.backward_weight},
                {"activation", costs.activation},
                {"activation_after_i", costs.activation_after_i}});
  return stage;
}

Json TopologyJson(const Topology& topology) {
  Json levels = Json::array();
  for (const LinkLevel& level : topology.levels) {
    Json each = {{"latency", level.latency}, {"bandwidth", level.bandwidth}};
    if (level.ranks != LinkLevel::kAllRanks) each["ranks"] = level.ranks;
    if (level.shared) each["shared"] = true;
    if (level.half_duplex) each["half_duplex"] = true;
    levels.push_back(std::move(each));
  }
  return levels;
}

// The state that says all by lanes, stages and links.
Json StateInFull(const PricedSchedule& priced) {
  const Costs& costs = priced.costs;
  Json state = {{"schedule", "1f1b"}, {"fields", Json::object()}, {"stageCosts", Json::array()}};
  for (const StageCosts& stage : costs.stages) state["stageCosts"].push_back(StageJson(stage));
  Json& fields = state["fields"];
  if (costs.topology.empty()) {
    if (costs.comm > 0) fields["comm"] = fmt::format("{}", costs.comm);
  } else {
    state["topology"] = TopologyJson(costs.topology);
  }
  if (costs.message_bytes > 0) fields["message_bytes"] = fmt::format("{}", costs.message_bytes);
  if (costs.transfers != Transfers::kAsynchronous) {
    fields["transfers"] = kTransfersNames[static_cast<std::size_t>(costs.transfers)];
  }
  if (!priced.time_unit.empty()) fields["time_unit"] = priced.time_unit;
  state["inBytes"] = priced.memory_unit == "B";
  state["csv"] = WriteCsv(priced.schedule);
  return state;
}

// Whether the page computes the same figures from the state.
bool Reproduces(const Json& state, const Simulated& simulated) {
  Json question = {{"ask", "show"}, {"schedule", state["schedule"]}, {"fields", state["fields"]}};
  if (!state["stageCosts"].is_null()) {
    question["stage_costs"] = state["stageCosts"];
    question["in_bytes"] = state["inBytes"];
  }
  if (state.contains("topology")) question["topology"] = state["topology"];
  if (!state["csv"].is_null()) question["csv"] = state["csv"];
  const Json answer = Json::parse(Ask(TextOf(question)));
  if (!answer.contains("exact")) return false;
  const auto same = [&](const char* figure, double value) {
    return std::abs(answer["exact"][figure].get<double>() - value) <= 1e-9 * std::abs(value);
  };
  return same("makespan", simulated.result.makespan) &&
         same("peak_memory", simulated.result.peak_memory);
}

// The other run as the page's answers have it.
Json KeptOf(const Simulated& simulated) {
  ReportInput input = ReportOf(simulated);
  input.runs = {RunOf(simulated, simulated.chosen.label, simulated.chosen.schedule)};
  Json answer = {{"caption", CaptionText(input, input.runs.front())},
                 {"exact", ToJson(simulated, false)},
                 {"csv", WriteCsv(simulated.chosen.schedule)}};
  answer["page"] = Json::parse(PageDataJson(input));
  return {{"answer", std::move(answer)}, {"name", simulated.chosen.label}};
}

Result<Json> StateOf(const Scenario& scenario, const Simulated& simulated) {
  if (!scenario.schedules.empty() &&
      scenario.schedules.front().kind == Candidate::Kind::kAlgorithm &&
      scenario.schedules.front().options.empty() && !scenario.profiled) {
    Json state = StateAsAsked(scenario);
    if (!state.is_null() && Reproduces(state, simulated)) return state;
  }
  Json state = StateInFull(simulated.chosen);
  if (Reproduces(state, simulated)) return state;
  return InvalidArgument(
      "{}: the playground has no fields for these costs, such as costs that differ by slice, and "
      "would show other figures; the usual report has them",
      simulated.chosen.label);
}

}  // namespace

Result<std::string> OpenWith(const std::string& page, const Scenario& scenario,
                             const std::vector<Simulated>& all) {
  const std::size_t at = page.find(kPlace);
  if (at == std::string::npos) return NotFound("this is no page of tools/playground");
  PENSTOCK_TRY(Json state, StateOf(scenario, all.front()));
  Json opening = {{"state", std::move(state)}, {"kept", nullptr}};
  if (all.size() > 1) opening["kept"] = KeptOf(all[1]);
  std::string text = TextOf(opening);
  // No text may end the script element or open one.
  for (std::size_t open = 0; (open = text.find('<', open)) != std::string::npos;) {
    text.replace(open, 1, "\\u003c");
  }
  const std::size_t begin = at + kPlace.size();
  return page.substr(0, begin) + text + page.substr(page.find("</script>", begin));
}

}  // namespace penstock::playground
