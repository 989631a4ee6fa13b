#include "schedule/algorithms/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "schedule/algorithms/critical_swaps.h"
#include "schedule/algorithms/list_scheduler.h"
#include "schedule/algorithms/pattern_sampler.h"
#include "schedule/algorithms/squeeze.h"

namespace penstock {
namespace {

using Direction = SqueezeOptions::Direction;
using WeightsLast = SqueezeOptions::WeightsLast;

// Work of one search, in actions run: about half a second on one core.
constexpr double kActionBudget = 3e6;
constexpr double kMostPasses = 400;
// Patterns that may be drawn for each one that is squeezed.
constexpr double kDrawsAPass = 100;
// Candidates that are worth squeezing to and fro.
constexpr std::size_t kPoolSize = 24;

// The ways to squeeze from the start; passes to and fro go through them in turn.
constexpr std::array<SqueezeOptions, 9> kPasses = {{
    {Direction::kFromStart, WeightsLast::kNever, 0.5},
    {Direction::kFromStart, WeightsLast::kInDrain, 0},
    {Direction::kFromStart, WeightsLast::kAlways, 1},
    {Direction::kFromStart, WeightsLast::kNever, 0},
    {Direction::kFromStart, WeightsLast::kAlways, 0.5},
    {Direction::kFromStart, WeightsLast::kInDrain, 1},
    {Direction::kFromStart, WeightsLast::kAlways, 0},
    {Direction::kFromStart, WeightsLast::kInDrain, 0.5},
    {Direction::kFromStart, WeightsLast::kNever, 1},
}};

struct Candidate {
  double makespan = kNever;
  double peak_memory = kNever;
  std::vector<Lane> lanes;
  int visits = 0;

  bool BetterThan(const Candidate& other) const {
    const double slack = kRounding * makespan;
    if (std::abs(makespan - other.makespan) > slack) return makespan < other.makespan;
    return peak_memory < other.peak_memory - slack;
  }
};

// The same costs with all times alike.
Costs AverageTimes(const Problem& problem) {
  Costs averages = problem.costs;
  double total = 0;
  for (const StageCosts& stage : averages.stages) {
    total += stage.forward + stage.backward_input + stage.backward_weight;
  }
  const double average = total / 3 / static_cast<double>(averages.stages.size());
  for (StageCosts& stage : averages.stages) {
    stage.forward = stage.backward_input = stage.backward_weight = average;
  }
  averages.comm = 0;
  return averages;
}

bool HasEqualTimes(const Problem& problem) {
  const double time = problem.costs.stages.front().forward;
  bool equal = problem.costs.comm == 0;
  for (const StageCosts& stage : problem.costs.stages) {
    equal = equal && stage.forward == time && stage.backward_input == time &&
            stage.backward_weight == time;
  }
  return equal;
}

class Search {
 public:
  explicit Search(const Problem& problem)
      : problem_(problem),
        averages_(AverageTimes(problem)),
        equal_times_(HasEqualTimes(problem)),
        squeezer_(problem),
        average_squeezer_({problem.placement, averages_, problem.rows, problem.cuts, problem.split,
                           problem.memory_limit}),
        lower_bound_(LowerBound(problem)) {
    const double actions = (problem.split ? 3.0 : 2.0) * problem.placement.stages() * problem.rows;
    passes_ = std::min(kActionBudget / actions, kMostPasses);
    window_ = 16 * problem.placement.chunks();
  }

  void AddSeeds(const std::vector<std::vector<Lane>>& seeds) {
    // Each in its order, and squeezed in some ways that take a third of the passes together.
    const double ways = passes_ / 6 / static_cast<double>(std::max<std::size_t>(1, seeds.size()));
    for (const auto& lanes : seeds) {
      if (Done()) return;
      if (PeakMemory(problem_, lanes) > problem_.memory_limit * (1 + kRounding)) continue;
      SqueezeOptions in_order;
      in_order.window = 1;
      Squeeze(lanes, in_order);
      for (std::size_t i = 0; i < kPasses.size() && static_cast<double>(i) < ways && !Done(); ++i) {
        Squeeze(lanes, kPasses[i]);
        if (!Done() && !equal_times_) SqueezeInEqualTimes(lanes, kPasses[i]);
      }
    }
  }

  // List scheduling with several windows of microbatches in flight.
  void AddListSchedules(double passes) {
    if (passes < 2 && !pool_.empty()) return;
    ListScheduler scheduler(problem_);
    const double most = std::min<double>(
        problem_.rows, 3 * problem_.memory_limit / LeastMemory(problem_.placement, problem_.costs));
    const double windows = std::max(1.0, std::floor(passes / 2));
    ListRule rule = ListRule::BackwardFirst(problem_.placement, problem_.rows);
    int previous = 0;
    for (double i = 1; i <= windows && !Done(); ++i) {
      const int window = std::max(1, static_cast<int>(std::ceil(most * i / windows)));
      if (window == previous) continue;
      previous = rule.window = window;
      for (const double patience : {0.0, 0.5}) {
        rule.patience = patience;
        const double makespan = scheduler.Run(rule);
        Add({makespan, scheduler.peak_memory(), scheduler.lanes()});
      }
    }
  }

  void AddPatterns(double passes) {
    PatternSampler sampler(problem_);
    // Memory is quick to check beside a pass over all actions.
    int tries_left = static_cast<int>(kDrawsAPass * passes);
    for (double i = 0; i < passes && tries_left > 0 && !Done(); --tries_left) {
      const PeriodPattern pattern = sampler.Draw();
      const auto pass = static_cast<std::size_t>(sampler.dice().Below(kPasses.size()));
      if (!FitsMemory(problem_, pattern)) {
        sampler.Rejected();
        continue;
      }
      sampler.Accepted();
      const std::vector<Lane> lanes = LanesOf(problem_, pattern);
      Squeeze(lanes, kPasses[pass]);
      ++i;
      if (equal_times_ || Done()) continue;
      SqueezeInEqualTimes(lanes, kPasses[pass]);
      ++i;
    }
  }

  // Squeezes the pool's candidates to and fro, best first, each as often as the others.
  void Improve(double passes) {
    for (double i = 0; i + 2 <= passes && !Done(); i += 2) {
      std::size_t next = 0;
      for (std::size_t k = 1; k < pool_.size(); ++k) {
        if (pool_[k].visits < pool_[next].visits) next = k;
      }
      Candidate& candidate = pool_[next];
      const int visit = candidate.visits++;
      SqueezeOptions back;
      back.direction = Direction::kFromEnd;
      back.patience = visit % 2 == 0 ? 0 : 0.5;
      back.window = window_;
      squeezer_.Run(candidate.lanes, back);
      const std::vector<Lane> moved = squeezer_.lanes();
      SqueezeOptions forth = kPasses[static_cast<std::size_t>(visit) % kPasses.size()];
      forth.window = window_;
      candidate.makespan = squeezer_.Run(moved, forth);
      candidate.peak_memory = squeezer_.peak_memory();
      candidate.lanes = squeezer_.lanes();
      if (candidate.BetterThan(best_)) best_ = candidate;
    }
  }

  // Swaps neighbours on the critical path of the best, one at a time, squeezes what comes of it,
  // and goes on from there if it is no longer.
  void Polish(double passes) {
    SqueezeOptions in_order;
    in_order.window = 1;
    Candidate current = best_;
    double i = 0;
    while (i < passes && !Done()) {
      squeezer_.Run(current.lanes, in_order);
      const std::vector<Swap> swaps = CriticalSwaps(problem_, squeezer_, current.lanes);
      ++i;
      if (swaps.empty()) return;
      for (int tries = 0; tries < 8 && i < passes && !Done(); ++tries) {
        const Swap& swap =
            swaps[static_cast<std::size_t>(dice_.Below(static_cast<int>(swaps.size())))];
        std::vector<Lane> lanes = current.lanes;
        Lane& lane = lanes[static_cast<std::size_t>(swap.rank)];
        std::swap(lane[swap.position], lane[swap.position + 1]);
        if (PeakMemory(problem_, lanes) > problem_.memory_limit * (1 + kRounding)) continue;
        SqueezeOptions forth = kPasses[static_cast<std::size_t>(dice_.Below(kPasses.size()))];
        forth.window = dice_.Below(3) == 0 ? 1 : window_;
        const double makespan = squeezer_.Run(lanes, forth);
        ++i;
        if (makespan > current.makespan * (1 + kRounding)) continue;
        const bool better = makespan < current.makespan * (1 - kRounding);
        current = {makespan, squeezer_.peak_memory(), squeezer_.lanes()};
        if (current.BetterThan(best_)) best_ = current;
        if (better) break;
        break;
      }
    }
  }

  bool Done() const { return best_.makespan <= lower_bound_ * (1 + kRounding); }
  double passes() const { return passes_; }
  std::vector<Lane> TakeBest() { return std::move(best_.lanes); }

 private:
  void Squeeze(const std::vector<Lane>& lanes, SqueezeOptions options) {
    if (options.window != 1) options.window = window_;
    const double makespan = squeezer_.Run(lanes, options);
    Add({makespan, squeezer_.peak_memory(), squeezer_.lanes()});
  }

  // Squeezes as if all actions took the same time: patterns made for F = I = W keep their order
  // better.
  void SqueezeInEqualTimes(const std::vector<Lane>& lanes, SqueezeOptions options) {
    options.window = window_;
    average_squeezer_.Run(lanes, options);
    SqueezeOptions in_order;
    in_order.window = 1;
    Squeeze(average_squeezer_.lanes(), in_order);
  }

  // Keeps the best, one of each makespan.
  void Add(Candidate candidate) {
    if (candidate.BetterThan(best_)) best_ = candidate;
    const auto place = std::find_if(pool_.begin(), pool_.end(), [&](const Candidate& other) {
      return !other.BetterThan(candidate);
    });
    if (place != pool_.end() && !candidate.BetterThan(*place)) return;
    pool_.insert(place, std::move(candidate));
    if (pool_.size() > kPoolSize) pool_.pop_back();
  }

  const Problem& problem_;
  const Costs averages_;
  const bool equal_times_;
  Squeezer squeezer_;
  Squeezer average_squeezer_;
  const double lower_bound_;
  double passes_ = 0;
  int window_ = 0;
  Dice dice_;
  Candidate best_;
  std::vector<Candidate> pool_;  // best first when filled
};

// Most time of forwards that fit the memory: the stages with most time for their memory first.
double ForwardTimeWithin(const Problem& problem, int rank) {
  std::vector<const StageCosts*> stages;
  for (const int stage : problem.placement.stages_of(rank)) {
    stages.push_back(&problem.costs.stages[static_cast<std::size_t>(stage)]);
  }
  std::sort(stages.begin(), stages.end(), [](const StageCosts* a, const StageCosts* b) {
    return a->forward * b->activation > b->forward * a->activation;
  });
  double left = problem.memory_limit * (1 + kRounding), time = 0;
  for (const StageCosts* stage : stages) {
    const double fit = stage->activation > 0 ? std::floor(left / stage->activation) : kNever;
    const double count = std::min<double>(problem.rows, fit);
    time += count * stage->forward;
    if (count < problem.rows) {  // part of the next one, to stay below any mixture
      const double part = left / stage->activation - count;
      return time + (stages.size() > 1 ? part * stage->forward : 0);
    }
    left -= count * stage->activation;
  }
  return time;
}

}  // namespace

double LowerBound(const Problem& problem) {
  const Placement& placement = problem.placement;
  std::vector<double> first_forward(static_cast<std::size_t>(placement.ranks()), kNever);
  std::vector<double> first_backward = first_forward;
  const auto latency = [&](int from, int to) {
    return placement.rank_of(from) == placement.rank_of(to) ? 0 : problem.costs.comm;
  };
  const int length = placement.chain_length();
  for (int begin = 0; begin < placement.stages(); begin += length) {
    double time = 0;
    for (int s = begin; s < begin + length; ++s) {
      if (s > begin) time += latency(s - 1, s);
      auto& first = first_forward[static_cast<std::size_t>(placement.rank_of(s))];
      first = std::min(first, time);
      time += problem.costs.stages[static_cast<std::size_t>(s)].forward;
    }
    for (int s = begin + length - 1; s >= begin; --s) {
      auto& first = first_backward[static_cast<std::size_t>(placement.rank_of(s))];
      first = std::min(first, time);
      const StageCosts& cost = problem.costs.stages[static_cast<std::size_t>(s)];
      time += cost.backward_input + (problem.split ? 0 : cost.backward_weight);
      if (s > begin) time += latency(s, s - 1);
    }
  }
  double bound = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double work = 0;
    for (const int stage : placement.stages_of(rank)) {
      const StageCosts& cost = problem.costs.stages[static_cast<std::size_t>(stage)];
      work += cost.forward + cost.backward_input + cost.backward_weight;
    }
    const auto r = static_cast<std::size_t>(rank);
    const double idle = first_backward[r] - ForwardTimeWithin(problem, rank);
    bound = std::max(bound, work * problem.rows + std::max(first_forward[r], idle));
  }
  return bound;
}

std::vector<Lane> SearchLanes(const Problem& problem, const std::vector<std::vector<Lane>>& seeds) {
  Search search(problem);
  search.AddSeeds(seeds);
  search.AddListSchedules(search.passes() / 8);
  search.AddPatterns(search.passes() / 3);
  search.Improve(search.passes() / 2);
  search.Polish(search.passes());
  return search.TakeBest();
}

std::vector<Lane> SqueezeToAndFro(const Problem& problem, const std::vector<Lane>& lanes) {
  Search search(problem);
  search.AddSeeds({lanes});
  search.Improve(4.0 * kPasses.size());
  return search.TakeBest();
}

}  // namespace penstock
