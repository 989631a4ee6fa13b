#include "plan/figures/outlook_figures.h"

#include "plan/figures/training_figures.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json FiguresOf(const Outlook::Candidate& candidate) {
  Json object = FiguresOf(candidate.plan);
  object.erase("lower_bound");
  object.erase("gap");
  object["wins"] = candidate.regret.wins;
  object["mean_step_time"] = candidate.regret.mean_time;
  object["expected_regret"] = candidate.regret.expected;
  object["worst_regret"] = candidate.regret.worst;
  return object;
}

}  // namespace

Json FiguresOf(const std::optional<Outlook>& found) {
  if (!found) return nullptr;
  const Outlook& outlook = *found;
  Json candidates = Json::array(), constants = Json::array();
  for (const Outlook::Candidate& each : outlook.candidates) candidates.push_back(FiguresOf(each));
  for (const Outlook::Constant& each : outlook.constants) {
    constants.push_back({{"name", each.constant.name},
                         {"error", each.constant.error},
                         {"source", each.constant.source},
                         {"measurement", each.constant.measurement},
                         {"regret_left", each.regret_left}});
  }
  const Outlook::Constant* const decisive = outlook.decisive();
  return {{"samples", outlook.samples},
          {"seed", outlook.seed},
          {"wins", outlook.choice().regret.wins},
          {"expected_regret", outlook.choice().regret.expected},
          {"least_expected_regret", outlook.safest().regret.expected},
          {"candidates", std::move(candidates)},
          {"constants", std::move(constants)},
          {"measure", decisive != nullptr ? Json(decisive->constant.name) : Json()}};
}

}  // namespace penstock
