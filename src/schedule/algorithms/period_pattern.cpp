#include "schedule/algorithms/period_pattern.h"

#include <cmath>

#include "schedule/reserve.h"

namespace penstock {
namespace {

// Calls visit(Action) for the rank's actions of `rows` microbatches, in order of their starts.
template <class Visit>
void ForEachInOrder(const Problem& problem, const PeriodPattern& pattern, int rank, int rows,
                    Visit visit) {
  struct Stream {
    Op op;
    int stage;
    double start;
    int row = 0;
  };
  std::vector<Stream> streams;
  for (const int stage : problem.placement.stages_of(rank)) {
    const auto s = static_cast<std::size_t>(stage);
    streams.push_back({Op::kForward, stage, pattern.forward[s]});
    if (problem.split) {
      streams.push_back({Op::kBackwardInput, stage, pattern.backward[s]});
      streams.push_back({Op::kBackwardWeight, stage, pattern.weight[s]});
    } else {
      streams.push_back({Op::kBackward, stage, pattern.backward[s]});
    }
  }
  std::stable_sort(streams.begin(), streams.end(),
                   [](const Stream& a, const Stream& b) { return a.op < b.op; });
  for (std::size_t left = streams.size() * static_cast<std::size_t>(rows); left > 0; --left) {
    Stream* next = nullptr;
    double start = kNever;
    for (Stream& stream : streams) {
      const double candidate = stream.start + pattern.period * stream.row;
      if (stream.row < rows && candidate < start) {
        next = &stream;
        start = candidate;
      }
    }
    visit(MakeAction(next->op, next->stage, next->row++));
  }
}

// Memory taken, or given back where below zero, by the action.
double Change(const Costs& costs, const Action& action) {
  const StageCosts& stage = costs.stages[action.first.stage];
  switch (action.first.op) {
    case Op::kForward:
      return stage.activation;
    case Op::kBackwardInput:
      return stage.activation_after_i - stage.activation;
    case Op::kBackwardWeight:
      return -stage.activation_after_i;
    default:
      return -stage.activation;
  }
}

// Memory that a stage holds at a time when all microbatches run, by what has started until then.
double HeldAt(const Problem& problem, const PeriodPattern& pattern, int stage, double time) {
  const auto s = static_cast<std::size_t>(stage);
  const StageCosts& cost = problem.costs.stages[s];
  const auto before = [&](double start) { return std::ceil((time - start) / pattern.period); };
  const double forwards = std::floor((time - pattern.forward[s]) / pattern.period) + 1;
  const double inputs = before(pattern.backward[s]);
  if (!problem.split) return (forwards - inputs) * cost.activation;
  const double weights = before(pattern.weight[s]);
  return (forwards - inputs) * cost.activation + (inputs - weights) * cost.activation_after_i;
}

}  // namespace

std::vector<Lane> LanesOf(const Problem& problem, const PeriodPattern& pattern) {
  std::vector<Lane> lanes(static_cast<std::size_t>(problem.placement.ranks()));
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    Lane& lane = lanes[static_cast<std::size_t>(rank)];
    ReserveLong(lane, (problem.split ? 3 : 2) * problem.placement.stages_of(rank).size() *
                          static_cast<std::size_t>(problem.rows));
    ForEachInOrder(problem, pattern, rank, problem.rows,
                   [&lane](const Action& action) { lane.push_back(action); });
  }
  return lanes;
}

bool FitsMemory(const Problem& problem, const PeriodPattern& pattern) {
  const double limit = problem.memory_limit * (1 + kRounding);
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    // Memory only grows with a forward.
    for (const int forward : problem.placement.stages_of(rank)) {
      double held = 0;
      for (const int stage : problem.placement.stages_of(rank)) {
        held += HeldAt(problem, pattern, stage, pattern.forward[static_cast<std::size_t>(forward)]);
      }
      if (held > limit) return false;
    }
  }
  return true;
}

double PeakMemory(const Problem& problem, const std::vector<Lane>& lanes) {
  double peak = 0;
  for (const Lane& lane : lanes) {
    double held = 0;
    for (const Action& action : lane) {
      held += Change(problem.costs, action);
      peak = std::max(peak, held);
    }
  }
  return peak;
}

}  // namespace penstock
