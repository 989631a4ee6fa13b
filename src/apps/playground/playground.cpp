#include "playground/playground.h"

#include <utility>
#include <vector>

#include "base/text/quote.h"
#include "playground/answer.h"
#include "playground/edit.h"
#include "playground/priced.h"
#include "playground/question.h"
#include "scenario/fields.h"
#include "scenario/price/simulated.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"

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

// {"schedules": [{"name", "summary", "constraint", "source", "is_search", "reads": [field]}],
//  "fields": [{"name", "help", "value"}]}: what the page offers.
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

// {"name", "makespan", "bubble", "peak_memory", "above_limit"} of the question's schedule, without
// the fields that it does not read.
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

// Returns the names of the schedules of the catalog with the same lanes, of the same shape and
// with the question's costs. Searches are left out.
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

// What `show` answers to the same question with another order of the actions.
Result<std::string> ShowOther(const Question& question, Schedule schedule) {
  Question other = question;
  other.csv = WriteCsv(schedule);
  Subject subject;
  subject.faults = Validate(schedule);
  if (!subject.faults.empty()) return TextOf(FaultsJson(subject.faults));
  PENSTOCK_TRY(subject.priced, PriceOther(other, schedule));
  subject.schedule = std::move(schedule);
  return ShowText(other, std::move(subject));
}

Status RefusePasses(const Question& question) {
  if (question.scenario.pass.empty()) return {};
  return InvalidParameter("pass", ": remove the passes before you move actions by hand");
}

Result<std::string> AnswerAbout(const Question& question, Subject subject) {
  if (question.ask == "show") return ShowText(question, std::move(subject));
  if (question.ask == "name") return TextOf({{"names", NamesOf(question, subject.schedule)}});
  PENSTOCK_TRY_STATUS(RefusePasses(question));
  if (question.ask == "improve") {
    auto better = Improved(subject.priced, subject.schedule);
    if (!better) return TextOf({{"none", true}});
    return ShowOther(question, std::move(*better));
  }
  PENSTOCK_TRY(const Move move, ReadMove(question.rest, subject.schedule));
  if (question.ask == "places") return TextOf(PlacesJson(subject, move.rank, move.from));
  Apply(move, subject.schedule);
  return ShowOther(question, std::move(subject.schedule));
}

Result<std::string> Answer(std::string_view text) {
  PENSTOCK_TRY(const Question question, ReadQuestion(text));
  if (question.ask == "catalog") return TextOf(CatalogJson());
  if (question.ask == "figures") {
    PENSTOCK_TRY(const Json figures, FiguresJson(question));
    return TextOf(figures);
  }
  for (const char* const known : {"show", "name", "improve", "places", "move"}) {
    if (question.ask != known) continue;
    PENSTOCK_TRY(Subject subject, SubjectOf(question));
    if (!subject.faults.empty()) return TextOf(FaultsJson(subject.faults));
    return AnswerAbout(question, std::move(subject));
  }
  return InvalidArgument("there is no question {}", Quote(question.ask));
}

}  // namespace

std::string Ask(std::string_view question) {
  const auto answer = Answer(question);
  return answer ? *answer : TextOf(ErrorJson(answer.error()));
}

}  // namespace penstock::playground
