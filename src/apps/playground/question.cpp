#include "playground/question.h"

#include <algorithm>
#include <utility>

#include "base/text/quote.h"
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
  if (!IsOffered(*field)) return InvalidParameter(name, ": the playground has no such field");
  if (value.is_string()) return SetText(*field, value.get<std::string>(), scenario);
  if (!value.is_array()) return InvalidParameter(name, ": give a text or a list of texts");
  for (const Json& each : value) {
    if (!each.is_string()) return InvalidParameter(name, ": give a list of texts");
    PENSTOCK_TRY_STATUS(SetText(*field, each.get<std::string>(), scenario));
  }
  return {};
}

// Sets a member of an object, if it has it. Errors: kInvalidArgument about `what`.
Status SetNumber(const Json& object, const char* key, std::string_view what, double& member) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  const double value = found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0 && value <= kMostMemory)) {
    return InvalidParameter(what, ": {}: give a number of at least 0", key);
  }
  member = value;
  return {};
}

Result<StageCosts> ReadStage(const Json& stage) {
  StageCosts read;
  if (!stage.is_object()) return InvalidParameter("stage_costs", ": a stage is an object");
#define STAGE_COST(member, ...) \
  PENSTOCK_TRY_STATUS(SetNumber(stage, #member, "stage_costs", read.member));
#include "schedule/stage_costs.def"
#undef STAGE_COST
  // I keeps all of it for W, unless the question says so.
  if (!stage.contains("activation_after_i")) read.activation_after_i = read.activation;
  return read;
}

Status SetStageCosts(const Json& stages, bool in_bytes, Scenario& scenario) {
  if (!stages.is_array() || stages.empty()) {
    return InvalidParameter("stage_costs", ": give one entry per stage");
  }
  CostList costs;
  costs.in_bytes = in_bytes;
  for (const Json& stage : stages) {
    PENSTOCK_TRY(const StageCosts read, ReadStage(stage));
    costs.entries.push_back({1, read});
  }
  scenario.stage_costs = std::move(costs);
  return {};
}

Status SetTopology(const Json& levels, Scenario& scenario) {
  Topology topology;
  if (!levels.is_array()) return InvalidParameter("topology", ": give a list of levels");
  for (const Json& each : levels) {
    if (!each.is_object()) return InvalidParameter("topology", ": a level is an object");
    LinkLevel level;
    double ranks = LinkLevel::kAllRanks;
    PENSTOCK_TRY_STATUS(SetNumber(each, "ranks", "topology", ranks));
    PENSTOCK_TRY_STATUS(SetNumber(each, "latency", "topology", level.latency));
    PENSTOCK_TRY_STATUS(SetNumber(each, "bandwidth", "topology", level.bandwidth));
    level.ranks = static_cast<int>(std::min<double>(ranks, LinkLevel::kAllRanks));
    level.shared = each.value("shared", Json(false)) == true;
    level.half_duplex = each.value("half_duplex", Json(false)) == true;
    topology.levels.push_back(std::move(level));
  }
  PENSTOCK_TRY_STATUS(CheckTopology(topology));
  scenario.topology = std::move(topology);
  return {};
}

// Refuses a schedule of the catalog that would have more actions than a page shows.
Status RefuseTooLarge(const Scenario& scenario) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(scenario.schedules.front().name));
  const double chunks = scenario.chunks.value_or(algorithm->supported.default_chunks);
  const double actions = 3.0 * scenario.ranks.value_or(4) * chunks *
                         scenario.microbatches.value_or(8) * scenario.slices.value_or(1) *
                         scenario.steps.value_or(1) * algorithm->supported.replicas;
  if (actions <= kMostActions) return {};
  return InvalidArgument(
      "the schedule has up to {:.0f} actions, the playground shows at most {:.0f}: take fewer "
      "ranks or microbatches, or 'penstock simulate', which has no such limit",
      actions, kMostActions);
}

}  // namespace

bool IsOffered(const ScenarioField& field) {
  const bool reads_files = field.name == "model" || field.name == "machine";
  return !IsNested(field) && !reads_files && field.with_model != WithModel::kOnlyWith &&
         (field.read_by & (kAlgorithm | kCsv)) != 0;
}

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
    PENSTOCK_TRY_STATUS(
        SetStageCosts(*stages, object.value("in_bytes", Json(false)) == true, scenario));
  }
  if (const auto levels = object.find("topology"); levels != object.end()) {
    PENSTOCK_TRY_STATUS(SetTopology(*levels, scenario));
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
