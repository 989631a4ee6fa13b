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
      time += 2 * CommBetween(problem, s, placement.next(s));
    }
    const StageCosts& cost = problem.costs.stages[stage];
    stay += cost.activation * time;
    if (problem.split) stay += cost.activation_after_i * cost.backward_weight;
  }
  return stay;
}

// The earliest time at which each stage can start its first F and its first I (or B), if its chain
// starts at 0.
struct EarliestStarts {
  std::vector<double> forward, gradient;
};

EarliestStarts EarliestStartsOf(const Problem& problem) {
  const Placement& placement = problem.placement;
  const std::vector<StageCosts>& stages = problem.costs.stages;
  EarliestStarts starts{std::vector<double>(stages.size()), std::vector<double>(stages.size())};
  const int length = placement.chain_length();
  for (int begin = 0; begin < placement.stages(); begin += length) {
    double time = 0;
    for (int s = begin; s < begin + length; ++s) {
      if (s > begin) time += CommBetween(problem, s - 1, s);
      starts.forward[s] = time;
      time += stages[s].forward;
    }
    for (int s = begin + length - 1; s >= begin; --s) {
      starts.gradient[s] = time;
      time += TimeOfGradient(stages[s], problem.split);
      if (s > begin) time += CommBetween(problem, s, s - 1);
    }
  }
  return starts;
}

double Work(const Problem& problem, int rank) {
  double work = 0;
  for (const int stage : problem.placement.stages_of(rank)) {
    work += TimeOfMicrobatch(problem.costs.stages[stage], problem.split) * problem.indices;
  }
  return work;
}

// The least time that a rank's memory is in use: each microbatch takes some of it for some time.
double HeldTime(const Problem& problem, int rank) {
  return LeastStay(problem, rank) * problem.indices / problem.memory_limit * (1 - kRounding);
}

// The time from a rank's first F to its last W is at least all F and I of the stage or of a later
// one of its chain, the way there, and the way back.
double DetourBound(const Problem& problem, int rank) {
  const Placement& placement = problem.placement;
  const std::vector<StageCosts>& stages = problem.costs.stages;
  double bound = 0;
  for (const int stage : placement.stages_of(rank)) {
    double way = problem.split ? stages[stage].backward_weight : 0;
    for (int s = stage; s >= 0; s = placement.next(s)) {
      const double both = stages[s].forward + TimeOfGradient(stages[s], problem.split);
      bound = std::max(bound, way + both * problem.indices);
      way += both + 2 * CommBetween(problem, s, placement.next(s));
    }
  }
  return bound;
}

// The least time from a rank's first F to its first I (or B).
double LeastRoundTrip(const Problem& problem, const EarliestStarts& starts, int rank) {
  const int length = problem.placement.chain_length();
  double trip = kNever;
  for (const int stage : problem.placement.stages_of(rank)) {
    double entry = kNever;  // when the chain's first F on the rank can start
    for (const int s : problem.placement.stages_of(rank)) {
      if (s / length == stage / length) entry = std::min(entry, starts.forward[s]);
    }
    trip = std::min(trip, starts.gradient[stage] - entry);
  }
  return trip;
}

double SpanBound(const Problem& problem) {
  const EarliestStarts starts = EarliestStartsOf(problem);
  double bound = 0;
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    const double idle = LeastRoundTrip(problem, starts, rank) - ForwardTimeWithin(problem, rank);
    bound = std::max({bound, Work(problem, rank) + std::max(0.0, idle), HeldTime(problem, rank),
                      DetourBound(problem, rank)});
  }
  return bound;
}

double MakespanBound(const Problem& problem) {
  const EarliestStarts starts = EarliestStartsOf(problem);
  double bound = 0;
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    double first_forward = kNever, first_gradient = kNever;
    for (const int stage : problem.placement.stages_of(rank)) {
      first_forward = std::min(first_forward, starts.forward[stage]);
      first_gradient = std::min(first_gradient, starts.gradient[stage]);
    }
    const double idle = first_gradient - ForwardTimeWithin(problem, rank);
    bound = std::max({bound, Work(problem, rank) + std::max(first_forward, idle),
                      first_forward + HeldTime(problem, rank)});
  }
  return bound;
}

}  // namespace

double LowerBound(const Problem& problem) {
  return problem.objective == Objective::kSpan ? SpanBound(problem) : MakespanBound(problem);
}

}  // namespace penstock
