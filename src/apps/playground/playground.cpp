#include "playground/playground.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/text/quote.h"
#include "playground/answer.h"
#include "playground/priced.h"
#include "playground/question.h"
#include "scenario/fields.h"
#include "scenario/price/simulated.h"
#include "schedule/catalog.h"
#include "schedule/schedule.h"
#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/swap_search.h"
#include "schedule/text/text.h"
#include "simulate/simulate.h"

namespace penstock::playground {
namespace {

// The action at `from` of a rank's lane moves to `to`; those in between move up or down.
struct Move {
  int rank = 0;
  int from = 0;
  int to = 0;
};

void Apply(const Move& move, Schedule& schedule) {
  const auto lane = schedule.lanes[Index(move.rank)].begin();
  if (move.from < move.to) {
    std::rotate(lane + move.from, lane + move.from + 1, lane + move.to + 1);
  } else {
    std::rotate(lane + move.to, lane + move.from, lane + move.from + 1);
  }
}

constexpr int kMostPlaces = 64;  // in each direction

constexpr double kMoves = 20'000;  // of a local search, some hundred milliseconds

struct Trial {
  std::optional<SimulationResult> result;
  std::string reason;  // why it is not valid
};

Trial Try(const Schedule& schedule, const Costs& costs) {
  const std::vector<Fault> faults = Validate(schedule, {1});
  if (!faults.empty()) return {{}, Line(faults.front())};
  auto result = Simulate(schedule, costs);
  if (!result) return {{}, result.error().line()};
  return {std::move(*result), ""};
}

// Adds the places that follow `from` in a direction, up to the first one that is not valid. Returns
// why that one is not.
std::string AddPlaces(const Subject& subject, const Move& from, int step, Json& places) {
  Schedule schedule = subject.schedule;
  const int last = static_cast<int>(schedule.lanes[Index(from.rank)].size()) - 1;
  int at = from.from;
  for (int i = 0; i < kMostPlaces; ++i) {
    if (at + step < 0 || at + step > last) return "";
    Apply({from.rank, at, at + step}, schedule);
    at += step;
    Trial trial = Try(schedule, subject.priced.costs);
    if (!trial.result) return trial.reason;
    places.push_back({{"to", at},
                      {"makespan", trial.result->makespan},
                      {"peak_memory", trial.result->peak_memory}});
  }
  return "";
}

// Whether the search of swaps takes the schedule.
bool IsSearched(const Schedule& schedule) {
  const bool splits = std::ranges::all_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::all_of(lane, [](const Action& action) {
      const Op op = action.first.op;
      return !action.is_pair() &&
             (op == Op::kForward || op == Op::kBackwardInput || op == Op::kBackwardWeight);
    });
  });
  return splits && schedule.placement.replicas() == 1 && schedule.slices == 1 &&
         schedule.steps == 1 && schedule.weights == WeightPolicy::kFlush;
}

// Whether the new order is the better one.
bool Replaces(const SimulationResult& now, const SimulationResult& before, double limit) {
  constexpr double kLeast = 1e-9;  // relative; less is rounding
  return now.makespan < before.makespan * (1 - kLeast) && now.peak_memory <= limit * (1 + kLeast);
}

// Swaps neighbors, each pair once per round, as long as that makes the schedule shorter.
std::optional<Schedule> BySwaps(const PricedSchedule& priced, Schedule schedule, double limit) {
  auto best = Simulate(schedule, priced.costs);
  if (!best) return std::nullopt;
  bool found = false;
  int trials = 2'000;
  for (bool again = true; again && trials > 0;) {
    again = false;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const int size = static_cast<int>(schedule.lanes[Index(rank)].size());
      for (int at = 0; at + 1 < size && --trials > 0; ++at) {
        Apply({rank, at, at + 1}, schedule);
        Trial trial = Try(schedule, priced.costs);
        if (trial.result && Replaces(*trial.result, *best, limit)) {
          best = std::move(*trial.result);
          found = again = true;
        } else {
          Apply({rank, at + 1, at}, schedule);
        }
      }
    }
  }
  if (!found) return std::nullopt;
  return schedule;
}

// Errors: kInvalidArgument if a member is missing or no such place exists.
Result<Move> ReadMove(const Json& object, const Schedule& schedule) {
  Move move;
  PENSTOCK_TRY(move.rank, NumberOf(object, "rank"));
  PENSTOCK_TRY(move.from, NumberOf(object, "from"));
  move.to = move.from;
  if (object.contains("to")) {
    PENSTOCK_TRY(move.to, NumberOf(object, "to"));
  }
  if (move.rank < 0 || move.rank >= schedule.ranks()) {
    return InvalidArgument("there is no rank {}", move.rank);
  }
  const int size = static_cast<int>(schedule.lanes[Index(move.rank)].size());
  for (const int place : {move.from, move.to}) {
    if (place < 0 || place >= size) {
      return InvalidArgument("rank {} has no place {}", move.rank, place);
    }
  }
  return move;
}

// {"places": [{"to", "makespan", "peak_memory"}], "before": reason, "after": reason}: where the
// action at (rank, from) may go, and why it may go no further; no reason at an end of the lane.
// Looks at most kMostPlaces far in each direction.
Json PlacesJson(const Subject& subject, int rank, int from) {
  Json places = Json::array();
  Json answer;
  answer["before"] = AddPlaces(subject, {rank, from, from}, -1, places);
  std::reverse(places.begin(), places.end());
  const Trial now = Try(subject.schedule, subject.priced.costs);
  if (now.result) {
    places.push_back({{"to", from},
                      {"makespan", now.result->makespan},
                      {"peak_memory", now.result->peak_memory}});
  }
  answer["after"] = AddPlaces(subject, {rank, from, from}, 1, places);
  answer["places"] = std::move(places);
  return answer;
}

// Returns a better order of the same actions: one with a shorter makespan that needs no more
// memory, or no more than the limit of the scenario. Nothing if the local search finds none.
std::optional<Schedule> Improved(const PricedSchedule& priced, const Schedule& schedule) {
  const auto now = Simulate(schedule, priced.costs);
  if (!now) return std::nullopt;
  const double limit = std::max(priced.memory_limit.value_or(0), now->peak_memory);
  if (!IsSearched(schedule)) return BySwaps(priced, schedule, limit);
  const Problem problem = {schedule.placement, priced.costs, schedule.microbatches, 1, true, limit};
  SwapSearch search(problem);
  Schedule found = schedule;
  found.lanes = search.Run(schedule.lanes, kMoves, kMoves, LowerBound(problem));
  const Trial trial = Try(found, priced.costs);
  if (!trial.result || !Replaces(*trial.result, *now, limit)) return std::nullopt;
  return found;
}

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
// the fields that it does not read. "one_after_other" is the makespan with overlapped pairs at F +
// B, or null: that of the others has them at the longer of the two.
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
              {"above_limit", simulated.above_limit},
              {"one_after_other",
               simulated.overlap_sum ? Json(simulated.overlap_sum->makespan) : Json(nullptr)}};
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
