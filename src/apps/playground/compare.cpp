#include "playground/compare.h"

#include <utility>

#include "scenario/fields.h"
#include "scenario/price/simulated.h"
#include "schedule/catalog.h"

namespace penstock::playground {
namespace {

// Whether the algorithm's schedule depends on the costs.
bool IsSearch(const Algorithm& algorithm) { return algorithm.supported.objective; }

Json ReadBy(const Algorithm& algorithm) {
  Json names = Json::array();
  for (const ScenarioField& field : ScenarioFields()) {
    const bool reads = (field.read_by & kAlgorithm) != 0 &&
                       (field.supported == nullptr || field.supported(algorithm, Scenario()));
    if (reads && IsOffered(field)) names.push_back(field.name);
  }
  return names;
}

}  // namespace

Json CatalogJson() {
  Json schedules = Json::array();
  for (const Algorithm& algorithm : Catalog()) {
    schedules.push_back({{"name", algorithm.name},
                         {"summary", algorithm.summary},
                         {"when", algorithm.when},
                         {"constraint", algorithm.constraint},
                         {"source", algorithm.source},
                         {"is_search", IsSearch(algorithm)},
                         {"chunks", algorithm.supported.default_chunks},
                         {"reads", ReadBy(algorithm)}});
  }
  Json fields = Json::array();
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsOffered(field)) continue;
    fields.push_back({{"name", field.name}, {"help", field.help}, {"value", field.value_name}});
  }
  return {{"schedules", std::move(schedules)}, {"fields", std::move(fields)}};
}

Result<Json> FiguresJson(const Question& question) {
  Scenario scenario = question.scenario;
  if (scenario.schedules.empty()) return InvalidArgument("name a schedule");
  scenario.compares = true;
  PENSTOCK_TRY(PricedSchedule built, BuildOne(scenario, scenario.schedules.front(), {}));
  PENSTOCK_TRY(const Simulated simulated, SimulateOne(std::move(built), false));
  const SimulationResult& result = simulated.result;
  return Json{{"name", simulated.chosen.label},
              {"makespan", result.makespan},
              {"bubble", result.bubble},
              {"peak_memory", result.peak_memory},
              {"above_limit", simulated.above_limit}};
}

std::vector<std::string> NamesOf(const Question& question, const Schedule& schedule) {
  Scenario scenario = question.scenario;
  scenario.pass.clear();
  scenario.price.clear();
  scenario.ranks = schedule.ranks();
  scenario.chunks = schedule.placement.chunks();
  scenario.microbatches = schedule.microbatches;
  if (schedule.slices > 1) scenario.slices = schedule.slices;
  if (schedule.steps > 1) scenario.steps = schedule.steps;
  scenario.compares = true;
  std::vector<std::string> names;
  for (const Algorithm& algorithm : Catalog()) {
    if (IsSearch(algorithm)) continue;
    const Candidate candidate = {Candidate::Kind::kAlgorithm, std::string(algorithm.name)};
    const auto built = BuildOne(scenario, candidate, {});
    if (!built) continue;
    const Schedule& other = built->schedule;
    if (other.placement == schedule.placement && other.lanes == schedule.lanes) {
      names.emplace_back(algorithm.name);
    }
  }
  return names;
}

}  // namespace penstock::playground
