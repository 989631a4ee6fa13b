#include "schedule/search/patterns/period_pattern.h"

#include <cmath>

#include "base/index.h"
#include "schedule/reserve.h"

namespace penstock {
namespace {

// Calls visit(Action) for the rank's actions of `indices` microbatch indices, in order of start.
template <class Visit>
void ForEachInOrder(const Problem& problem, const PeriodPattern& pattern, int rank, int indices,
                    Visit visit) {
  struct Stream {
    Op op;
    int stage;
    double start;
    int n = 0;
  };
  std::vector<Stream> streams;
  for (const int stage : problem.placement.stages_of(rank)) {
    const std::size_t s = stage;
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
  for (std::size_t left = streams.size() * Index(indices); left > 0; --left) {
    Stream* next = nullptr;
    double start = kNever;
    for (Stream& stream : streams) {
      const double candidate = stream.start + pattern.period * stream.n;
      if (stream.n < indices && candidate < start) {
        next = &stream;
        start = candidate;
      }
    }
    visit(MakeAction(next->op, next->stage, next->n++));
  }
}

// The memory that a stage holds at a time in steady state, by what has started until then.
double HeldAt(const Problem& problem, const PeriodPattern& pattern, int stage, double time) {
  const std::size_t s = stage;
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
  std::vector<Lane> lanes(problem.placement.ranks());
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    Lane& lane = lanes[rank];
    ReserveLong(lane, (problem.split ? 3 : 2) * problem.placement.stages_of(rank).size() *
                          Index(problem.indices));
    ForEachInOrder(problem, pattern, rank, problem.indices,
                   [&lane](const Action& action) { lane.push_back(action); });
  }
  return lanes;
}

bool FitsMemory(const Problem& problem, const PeriodPattern& pattern) {
  const double limit = problem.memory_limit * (1 + kRounding);
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    // Memory only grows at a forward.
    for (const int forward : problem.placement.stages_of(rank)) {
      double held = 0;
      for (const int stage : problem.placement.stages_of(rank)) {
        held += HeldAt(problem, pattern, stage, pattern.forward[forward]);
      }
      if (held > limit) return false;
    }
  }
  return true;
}

}  // namespace penstock
