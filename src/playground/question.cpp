#include "playground/question.h"

#include <utility>

#include "base/text/quote.h"
#include "scenario/fields.h"
#include "schedule/catalog.h"

namespace penstock::playground {
namespace {

Result<std::string> TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::string();
  if (!found->is_string()) return InvalidArgument("{}: give a text", Quote(key));
  return found->get<std::string>();
}

Status SetField(const std::string& name, const Json& value, Scenario& scenario) {
  const ScenarioField* const field = FindField(name);
  if (field == nullptr) return InvalidArgument("there is no field {}", Quote(name));
  if (IsNested(*field)) return InvalidParameter(name, ": the playground has no such field");
  if (value.is_string()) return SetText(*field, value.get<std::string>(), scenario);
  if (!value.is_array()) return InvalidParameter(name, ": give a text or a list of texts");
  for (const Json& each : value) {
    if (!each.is_string()) return InvalidParameter(name, ": give a list of texts");
    PENSTOCK_TRY_STATUS(SetText(*field, each.get<std::string>(), scenario));
  }
  return {};
}

Status SetStageCosts(const Json& stages, Scenario& scenario) {
  if (!stages.is_array() || stages.empty()) {
    return InvalidParameter("stage_costs", ": give one entry per stage");
  }
  CostList costs;
  for (const Json& stage : stages) {
    StageCosts read;
    const std::pair<const char*, double*> members[] = {{"forward", &read.forward},
                                                       {"backward_input", &read.backward_input},
                                                       {"backward_weight", &read.backward_weight},
                                                       {"activation", &read.activation}};
    for (const auto& [key, member] : members) {
      const auto found = stage.is_object() ? stage.find(key) : stage.end();
      const double value =
          found != stage.end() && found->is_number() ? found->get<double>() : -1;
      const double most = member == &read.activation ? kMostMemory : kMostTime;
      if (!(value >= 0 && value <= most)) {
        return InvalidParameter("stage_costs", ": stage {}: {}: give a number of at least 0",
                                costs.entries.size(), key);
      }
      *member = value;
    }
    read.activation_after_i = read.activation;
    costs.entries.push_back({1, read});
  }
  scenario.stage_costs = std::move(costs);
  return {};
}

// Of a schedule of the catalog with these fields, at most.
Status RefuseTooLarge(const Scenario& scenario) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(scenario.schedules.front().name));
  const double chunks = scenario.chunks.value_or(algorithm->supported.default_chunks);
  const double actions = 3.0 * scenario.ranks.value_or(4) * chunks *
                         scenario.microbatches.value_or(8) * scenario.slices.value_or(1) *
                         scenario.steps.value_or(1) * algorithm->supported.replicas;
  if (actions <= kMostActions) return {};
  return InvalidArgument(
      "the schedule has up to {:.0f} actions, the playground shows at most {:.0f}: take fewer ranks "
      "or microbatches, or 'penstock simulate', which has no such limit",
      actions, kMostActions);
}

}  // namespace

Result<int> NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) {
    return InvalidArgument("{}: give a whole number", Quote(key));
  }
  return found->get<int>();
}

Result<Question> ReadQuestion(std::string_view text) {
  Question question;
  question.rest = Json::parse(text, nullptr, false);
  const Json& object = question.rest;
  if (!object.is_object()) return InvalidArgument("a question is an object");
  PENSTOCK_TRY(question.ask, TextOf(object, "ask"));
  Scenario& scenario = question.scenario;
  if (const auto fields = object.find("fields"); fields != object.end()) {
    if (!fields->is_object()) return InvalidArgument("'fields' is an object");
    for (const auto& [name, value] : fields->items()) {
      PENSTOCK_TRY_STATUS(SetField(name, value, scenario));
    }
  }
  if (const auto stages = object.find("stage_costs"); stages != object.end()) {
    PENSTOCK_TRY_STATUS(SetStageCosts(*stages, scenario));
  }
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  if (object.contains("csv")) {
    PENSTOCK_TRY(question.csv, TextOf(object, "csv"));
  }
  PENSTOCK_TRY(const std::string name, TextOf(object, "schedule"));
  if (name.empty()) return question;
  scenario.schedules.push_back({Candidate::Kind::kAlgorithm, name});
  if (!question.csv) PENSTOCK_TRY_STATUS(RefuseTooLarge(scenario));
  return question;
}

}  // namespace penstock::playground
