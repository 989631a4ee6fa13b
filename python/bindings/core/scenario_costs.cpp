#include "bindings/core/scenario_costs.h"

#include <fmt/ranges.h>

#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "scenario/fields.h"
#include "scenario/price/params.h"
#include "scenario/price/passes.h"
#include "scenario/price/read_file.h"
#include "schedule/pricing/action_prices.h"
#include "schedule/text/cost_text.h"

namespace penstock::python {
namespace {

// Whether costs have the field.
bool Prices(const ScenarioField& field) {
  switch (field.group) {
    case FieldGroup::kCosts:
      return field.name != "memory_limit";
    case FieldGroup::kModel:
      return true;
    case FieldGroup::kPasses:
      return field.name == "price";
    default:
      return false;
  }
}

// Refuses what no schedule could make right.
Status CheckAlways(const Scenario& scenario) {
  PENSTOCK_TRY_STATUS(ParamsOf(scenario));
  if (scenario.prices_model()) PENSTOCK_TRY_STATUS(scenario.Load());
  if (scenario.transfers) {
    PENSTOCK_TRY_STATUS(Of("transfers", ParseTransfers(*scenario.transfers)));
  }
  for (const std::string& price : scenario.price) PENSTOCK_TRY_STATUS(ParsePrice(price));
  PENSTOCK_TRY(const Topology links, LinksOf(scenario));
  for (const LinkLevel& level : links.levels) {
    if (level.bandwidth == 0 || scenario.message_bytes || scenario.prices_model()) continue;
    return InvalidParameter(scenario.topology ? "topology" : "bandwidth",
                            ": level {} has a bandwidth; give `message_bytes`", Quote(level.name));
  }
  return {};
}

// Gives equal costs one form.
Status Normalize(Scenario& scenario) {
  if (!scenario.has_costs()) scenario.cost = "1";
  if (scenario.cost) {
    PENSTOCK_TRY(const UniformCost cost, Of("cost", ParseCost(*scenario.cost)));
    scenario.cost = fmt::format("{},{},{},{}", cost.forward, cost.backward_input,
                                cost.backward_weight, cost.kept_for_weight);
  }
  if (scenario.prices_model() && !scenario.time_unit) scenario.time_unit = "s";
  if (scenario.message_bytes) {
    PENSTOCK_TRY(const double size, MessageBytes(scenario, 1));
    scenario.message_bytes = fmt::format("{}", size);
  }
  PENSTOCK_TRY(const PassList passes, PassesOf(scenario));
  scenario.price = passes.prices;
  return {};
}

}  // namespace

Status ReadFields(const std::string& yaml, const Purpose& purpose, Scenario& scenario) {
  PENSTOCK_TRY(const YAML::Node root, ParseYaml(yaml));
  PENSTOCK_TRY(const YamlMap config, YamlMap::Of(root, "the costs"));
  PENSTOCK_TRY_STATUS(FillFromYaml("", config, purpose, scenario));
  scenario.places.clear();
  return {};
}

Result<ScenarioCosts> ScenarioCosts::Parse(const std::string& yaml) {
  ScenarioCosts costs;
  Scenario& scenario = costs.scenario_;
  PENSTOCK_TRY_STATUS(ReadFields(yaml, {.sweeps = true}, scenario));
  scenario.schedules.clear();
  scenario.sweep.clear();
  for (const ScenarioField& field : ScenarioFields()) {
    if (!Prices(field)) Reset(field, scenario);
  }
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario)) continue;
    if (field.with_model == WithModel::kOnlyWith && !scenario.prices_model()) {
      return InvalidParameter(field.name, "has no effect here: there is no model; leave it out");
    }
  }
  PENSTOCK_TRY_STATUS(Normalize(scenario));
  PENSTOCK_TRY_STATUS(CheckAlways(scenario));
  return costs;
}

std::string ScenarioCosts::Text() const {
  // A model's costs are in seconds; times next to it need a unit.
  const bool has_times = scenario_.comm || scenario_.launch || !scenario_.price.empty();
  std::string text;
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario_)) continue;
    if (field.name == "time_unit" && scenario_.prices_model() && !has_times) continue;
    text += ToYaml(field, scenario_);
  }
  return text;
}

Result<PricedSchedule> ScenarioCosts::PriceOf(const Schedule& schedule) const {
  Scenario own = scenario_;
  own.vocabulary_is_sharded = schedule.vocabulary;
  return Price(own, schedule);
}

std::string ScenarioCosts::memory_unit() const {
  return scenario_.in_bytes() || scenario_.activation_bytes ? "B" : "";
}

}  // namespace penstock::python
