#include "playground/edit.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/swap_search.h"
#include "simulate/simulate.h"

namespace penstock::playground {
namespace {

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

}  // namespace

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

void Apply(const Move& move, Schedule& schedule) {
  const auto lane = schedule.lanes[Index(move.rank)].begin();
  if (move.from < move.to) {
    std::rotate(lane + move.from, lane + move.from + 1, lane + move.to + 1);
  } else {
    std::rotate(lane + move.to, lane + move.from, lane + move.from + 1);
  }
}

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

}  // namespace penstock::playground
