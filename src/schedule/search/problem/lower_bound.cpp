#include "schedule/search/problem/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock {
namespace {

// The most time of forwards that fit the memory, with the highest ratio of time to memory first.
double ForwardTimeWithin(const Problem& problem, int rank) {
  std::vector<const StageCosts*> stages;
  for (const int stage : problem.placement.stages_of(rank)) {
    stages.push_back(&problem.costs.stages[stage]);
  }
  std::sort(stages.begin(), stages.end(), [](const StageCosts* a, const StageCosts* b) {
    return a->forward * b->activation > b->forward * a->activation;
  });
  double left = problem.memory_limit * (1 + kRounding), time = 0;
  for (const StageCosts* stage : stages) {
    const double fit = stage->activation > 0 ? std::floor(left / stage->activation) : kNever;
    const double count = std::min<double>(problem.indices, fit);
    time += count * stage->forward;
    if (count < problem.indices) {  // a fraction of the next one, to bound any mixture
      const double part = left / stage->activation - count;
      return time + (stages.size() > 1 ? part * stage->forward : 0);
    }
    left -= count * stage->activation;
  }
  return time;
}

// The least memory times time of one microbatch on the rank: from each F to the end of the chain,
// back to its I (or B), and through its W.
double LeastStay(const Problem& problem, int rank) {
  const Placement& placement = problem.placement;
  double stay = 0;
  for (const int stage : placement.stages_of(rank)) {
    double time = 0;
    for (int s = stage; s >= 0; s = placement.next(s)) {
      const StageCosts& cost = problem.costs.stages[s];
      time += cost.forward + TimeOfGradient(cost, problem.split);
      const int next = placement.next(s);
      if (next >= 0 && placement.rank_of(next) != placement.rank_of(s)) {
        time += 2 * problem.costs.comm;
      }
    }
    const StageCosts& cost = problem.costs.stages[stage];
    stay += cost.activation * time;
    if (problem.split) stay += cost.activation_after_i * cost.backward_weight;
  }
  return stay;
}

// The longest time from a rank's first F to its last W: its own work; or on a stage, the way to a
// later stage of the chain, all F and I there, and the way back.
double SpanBound(const Problem& problem) {
  const Placement& placement = problem.placement;
  const std::vector<StageCosts>& stages = problem.costs.stages;
  double bound = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double work = 0;
    for (const int stage : placement.stages_of(rank)) {
      const StageCosts& cost = stages[stage];
      work += TimeOfMicrobatch(cost, problem.split) * problem.indices;
      double way = problem.split ? cost.backward_weight : 0;
      for (int s = stage; s >= 0; s = placement.next(s)) {
        const double both = stages[s].forward + TimeOfGradient(stages[s], problem.split);
        bound = std::max(bound, way + both * problem.indices);
        const int next = placement.next(s);
        const bool crosses = next >= 0 && placement.rank_of(next) != placement.rank_of(s);
        way += both + (crosses ? 2 * problem.costs.comm : 0);
      }
    }
    bound = std::max(bound, work);
  }
  return bound;
}

}  // namespace

double LowerBound(const Problem& problem) {
  if (problem.objective == Objective::kSpan) return SpanBound(problem);
  const Placement& placement = problem.placement;
  std::vector<double> first_forward(placement.ranks(), kNever);
  std::vector<double> first_backward = first_forward;
  const auto latency = [&](int from, int to) {
    return placement.rank_of(from) == placement.rank_of(to) ? 0 : problem.costs.comm;
  };
  const int length = placement.chain_length();
  for (int begin = 0; begin < placement.stages(); begin += length) {
    double time = 0;
    for (int s = begin; s < begin + length; ++s) {
      if (s > begin) time += latency(s - 1, s);
      auto& first = first_forward[placement.rank_of(s)];
      first = std::min(first, time);
      time += problem.costs.stages[s].forward;
    }
    for (int s = begin + length - 1; s >= begin; --s) {
      auto& first = first_backward[placement.rank_of(s)];
      first = std::min(first, time);
      const StageCosts& cost = problem.costs.stages[s];
      time += TimeOfGradient(cost, problem.split);
      if (s > begin) time += latency(s, s - 1);
    }
  }
  double bound = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double work = 0;
    for (const int stage : placement.stages_of(rank)) {
      const StageCosts& cost = problem.costs.stages[stage];
      work += TimeOfMicrobatch(cost, problem.split);
    }
    const std::size_t r = rank;
    const double idle = first_backward[r] - ForwardTimeWithin(problem, rank);
    bound = std::max(bound, work * problem.indices + std::max(first_forward[r], idle));
    const double held = LeastStay(problem, rank) * problem.indices / problem.memory_limit;
    bound = std::max(bound, first_forward[r] + held * (1 - kRounding));
  }
  return bound;
}

}  // namespace penstock
