// The argument of InFlightBound, for one rank with stages s_0 < ... < s_top of the chain. A
// microbatch takes memory A = a_0 + ... + a_top on it, and L is the limit. Events are counted in
// their order of time, over all microbatches: F_top[k] is the time of the k-th start of F on s_top,
// from 0.
//
// 1. A microbatch frees memory only after the start of its I on s_top, which is at least the time
//    of F and the way to the end of the chain and back, `trip`, after the start of its F. So
//    I_top[k] >= F_top[k] + trip, because this holds for each microbatch and sorting preserves it.
// 2. When F_top[n] starts, n+1 microbatches have started all their F on the rank, so at least
//    D = (n+1)A - L has been freed. Before I_top[i], only i microbatches can have freed anything.
//    With i = ceil(D/A) - 1, they have freed, and will ever free, at most iA < D. The rest,
//    D - iA, is freed by microbatches whose I on s_top starts at I_top[i] or later. So their I and
//    W, which take time on the rank, are all after I_top[i] and before F_top[n].
// 3. Up to I_top[i], at most L + iA has been allocated; by the F before F_top[n], at least
//    (n+1)A - a_top has. So F that allocate D - iA - a_top are also between the two.
//
//    F_top[n] >= F_top[i] + trip + (the time to free D - iA) + (the time to allocate D - iA -
//    a_top)
//
// On the rank where a vee turns, this is the steady state of the best schedules: with memory for
// two microbatches, two of them take a round trip and the work of one microbatch but for an F. It
// is the one-machine relaxation of a job shop (Carlier 1982) with memory as a second resource. An
// area bound counts the same memory, but not that the rank must compute to free it.
//
// Likewise the k-th last microbatch leaves k microbatches' I and W after the start of its I.
//
// A rank with stages all over the chain holds them for different times, and which come first is
// open. There the same argument is summed up. A group is a run of consecutive stages on the rank: w
// of them (2 where a zigzag turns, 1 elsewhere). An item is a group and a microbatch. S is the
// start of F on the last stage of an item, J the start of I there, and trip the time between them
// at least. All stages take the same memory, and K of them fit. Number the stages of all items from
// 1 to N in the order of S, and S(x) is the S of the x-th stage's item; likewise J(y) in the order
// of J.
//
// 4. Let x be d places before the end of its item, and x - K the o-th place of its item in the
// order
//    of J. When S(x) starts, x + d stages are allocated, so x + d - K are freed. Before J(x - K),
//    items with x - K - o stages can have freed anything. So, as in steps 2 and 3,
//
//      S(x) >= J(x - K) + (o + d) (I + W) + (o + d - 1) F
//
// 5. Over an item of w stages, the o sum up to w(w+1)/2 and the d to w(w-1)/2, whatever the two
//    orders are. So the sum over all x > K has w^2 (I + W) + (w^2 - w) F per item, less what the
//    first K of the d and the last K of the o are at most. The sum of J over all stages is at least
//    the sum of S + trip. What remains is a bound on the last K of the J from the first K of the S:
//
//      J(N-K+1) + ... + J(N) >= S(1) + ... + S(K) + all swaps + all trips
//
//    The former are all before the end: J(N-j+1) by the I and W of j stages.
// 6. The first I on the rank is of a microbatch that has run all its F there, while at most K
//    stages were allocated. So each of its groups is among the first K of the S. Likewise the last
//    F on the rank is of a microbatch whose groups are all among the last K of the J.
//
// With w = 1 these are the area bounds of resource-constrained scheduling, with their ends.
//
// The work of the rank has such ends too. Let the memory be too small for all microbatches at once.
//
// 7. Before the first I, which is on s_top, the rank runs only F that fit the memory together. It
//    idles for the rest of that time, in the fill.
// 8. The last F on the rank is on s_top. After its end, the rank has at most the I and W left whose
//    activations fit the memory, while this microbatch still has to pass through the rest of the
//    chain and back. The fill is before the last F, because memory must have been freed for it. So
//    both ends add up:
//
//      idle in the fill + (all work - the work left) + the rest of the way
#include "plan/bound/makespan_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/index.h"
#include "schedule/search/problem/lower_bound.h"

namespace penstock {
namespace {

class RankBound {
 public:
  RankBound(const Problem& problem, int rank)
      : problem_(problem), stages_(problem.placement.stages_of(rank)) {
    equal_ = true;
    const double first = Cost(stages_.front()).activation;
    for (const int stage : stages_) {
      const StageCosts& cost = Cost(stage);
      activation_ += cost.activation;
      forward_ += cost.forward;
      backward_ += Backward(cost);
      equal_ = equal_ && std::abs(cost.activation - first) <= kRounding * first &&
               FreedByW(cost) >= cost.activation * (1 - kRounding);
      least_forward_ = std::min(least_forward_, cost.forward);
      least_backward_ = std::min(least_backward_, Backward(cost));
      const double freed_by_i = cost.activation - FreedByW(cost);
      if (cost.activation > 0) {
        allocate_rate_ = std::min(allocate_rate_, cost.forward / cost.activation);
        free_rate_ = std::min(free_rate_, Backward(cost) / cost.activation);
      }
      if (freed_by_i > 0) {
        free_rate_ = std::min(free_rate_, TimeOfGradient(cost, problem.split) / freed_by_i);
      }
    }
    least_activation_ = first;
    first_start_ = StartOf(stages_.front());
    top_start_ = StartOf(stages_.back());
    trip_ = TripFrom(stages_.back());
    after_ = WayOutFrom(stages_.back());
  }

  double Length() const {
    if (!(activation_ > 0)) return 0;
    return std::max({LastStageLength(), GroupsLength(), WorkLength()});
  }

 private:
  // By the last stage alone.
  double LastStageLength() const {
    std::vector<double> starts(problem_.indices);  // of F on the last stage
    const double limit = problem_.memory_limit * (1 + kRounding);
    const StageCosts& top = Cost(stages_.back());
    for (int n = 0; n < problem_.indices; ++n) {
      double& start = starts[n];
      start = n == 0 ? top_start_ : starts[n - 1] + top.forward;
      start = std::max(start, first_start_ + forward_ * (n + 1) - top.forward);
      const double freed = activation_ * (n + 1) - limit;
      if (!(freed > 0)) continue;
      const double before = std::ceil(freed / activation_) - 1;
      const double rest = freed - before * activation_;
      start = std::max(start, starts[static_cast<int>(before)] + trip_ + TimeToFree(rest) +
                                  TimeToAllocate(rest - top.activation));
    }
    return End(starts);
  }

  // By all groups of stages. 0 if their stages take different memory.
  double GroupsLength() const {
    if (!equal_) return 0;
    double trips = 0, swapped = 0, widest = 0;
    // By stage, of its group's last stage; in order of the chain and thus ascending.
    std::vector<double> starts, ways_out;
    for (const std::size_t end : GroupEnds()) {
      const std::size_t width = end - starts.size();
      const double w = static_cast<double>(width);
      const int last = stages_[end - 1];
      trips += w * TripFrom(last) * problem_.indices;
      swapped += w * w * problem_.indices;
      starts.insert(starts.end(), width, StartOf(last));
      ways_out.insert(ways_out.end(), width, WayOutFrom(last));
      widest = std::max(widest, w);
    }
    const double fit = std::floor(problem_.memory_limit / least_activation_ * (1 + kRounding));
    const double chunks = static_cast<double>(stages_.size());
    const double all = chunks * problem_.indices;
    if (fit >= all) return 0;
    double sum = trips;
    for (double k = 0; k < fit; ++k) {
      // The latest of the first K, and the earliest of the last K, are of one microbatch.
      const std::size_t stage = Index(static_cast<int>(std::max(0.0, k - (fit - chunks))));
      sum += std::max(starts[stage], first_start_ + least_forward_ * k);
      sum += std::max(ways_out[stage], (k + 1) * least_backward_);
      const double place = std::fmod(k, widest);
      swapped -= (widest - 1 - place) + (widest - place);  // at most d of the first, o of the last
    }
    sum += std::max(0.0, swapped) * least_backward_;
    sum += std::max(0.0, swapped - (all - fit)) * least_forward_;
    return sum / fit * (1 - kRounding);
  }

  // By the work of the rank between fill and drain.
  double WorkLength() const {
    if (!(activation_ * problem_.indices > problem_.memory_limit * (1 + kRounding))) return 0;
    std::vector<Load> forwards, backwards;
    for (const int stage : stages_) {
      const StageCosts& cost = Cost(stage);
      const double count = problem_.indices;
      forwards.push_back({cost.activation, cost.forward, count});
      backwards.push_back({cost.activation, Backward(cost), count});
      // Those whose I has run take less memory.
      if (problem_.split && FreedByW(cost) < cost.activation) {
        backwards.push_back({FreedByW(cost), cost.backward_weight, count});
      }
    }
    const double fill = std::max(first_start_, top_start_ + trip_ - MostTimeWithin(forwards));
    const double work = (forward_ + backward_) * problem_.indices;
    const double left = std::min(MostTimeWithin(backwards), backward_ * problem_.indices);
    const double drain = trip_ - Cost(stages_.back()).forward + after_;
    return (fill + work - left + drain) * (1 - kRounding);
  }

  // Actions of one kind: the memory and the time of each, and their number.
  struct Load {
    double memory, time, count;
  };

  // The most time of actions that take memory together.
  double MostTimeWithin(std::vector<Load> loads) const {
    // Without time and memory, an action would equal all others in this order.
    std::erase_if(loads, [](const Load& load) { return !(load.time > 0); });
    std::sort(loads.begin(), loads.end(),
              [](const Load& a, const Load& b) { return a.time * b.memory > b.time * a.memory; });
    double left = problem_.memory_limit * (1 + kRounding), time = 0;
    if (equal_) left = std::floor(left / least_activation_) * least_activation_;
    for (const Load& load : loads) {
      const double fit = load.memory > 0 ? left / load.memory : load.count;
      const double count = std::min(load.count, fit);
      time += count * load.time;
      left -= count * load.memory;
      if (!(left > 0)) break;
    }
    return time;
  }

  // For each run of consecutive stages, the position after its last one.
  std::vector<std::size_t> GroupEnds() const {
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i <= stages_.size(); ++i) {
      if (i == stages_.size() || stages_[i] != stages_[i - 1] + 1) ends.push_back(i);
    }
    return ends;
  }

  const StageCosts& Cost(int stage) const { return problem_.costs.stages[stage]; }
  double Backward(const StageCosts& cost) const {
    return TimeOfGradient(cost, problem_.split) + (problem_.split ? cost.backward_weight : 0);
  }
  double FreedByW(const StageCosts& cost) const {
    return problem_.split ? cost.activation_after_i : cost.activation;
  }

  // With equal amounts per stage, memory is freed and allocated in whole amounts.
  double TimeToFree(double amount) const {
    if (!(amount > 0)) return 0;
    if (!equal_) return amount * free_rate_;
    return std::ceil(amount / least_activation_ * (1 - kRounding)) * least_backward_;
  }
  double TimeToAllocate(double amount) const {
    if (!(amount > kRounding * activation_)) return 0;
    if (!equal_) return amount * allocate_rate_;
    return std::ceil(amount / least_activation_ * (1 - kRounding)) * least_forward_;
  }

  double Latency(int from, int to) const { return CommBetween(problem_, from, to); }

  // When a stage can start its first F. For spans, time begins with the rank's first one.
  double StartOf(int stage) const {
    double time = 0;
    for (int s = 0; s < stage; ++s) {
      if (s == stages_.front() && problem_.objective == Objective::kSpan) time = 0;
      time += Cost(s).forward + Latency(s, s + 1);
    }
    if (stage == stages_.front() && problem_.objective == Objective::kSpan) time = 0;
    return time;
  }

  // From the start of F on a stage to the start of I.
  double TripFrom(int stage) const {
    double trip = Cost(stage).forward;
    for (int s = stage + 1; s < problem_.placement.stages(); ++s) {
      trip += Cost(s).forward + TimeOfGradient(Cost(s), problem_.split) + 2 * Latency(s - 1, s);
    }
    return trip;
  }

  // From the start of I on a stage to the end of its microbatch, for spans on the rank alone.
  double WayOutFrom(int stage) const {
    double way = 0, out = 0;
    for (int s = stage; s >= 0; --s) {
      way += TimeOfGradient(Cost(s), problem_.split);
      const bool here = std::find(stages_.begin(), stages_.end(), s) != stages_.end();
      if (here || problem_.objective == Objective::kMakespan) {
        out = std::max(out, way + (problem_.split ? Cost(s).backward_weight : 0));
      }
      if (s > 0) way += Latency(s, s - 1);
    }
    return out;
  }

  double End(const std::vector<double>& starts) const {
    double end = 0;
    for (int n = 0; n < problem_.indices; ++n) {
      const double left = problem_.indices - n;
      const double gradient = starts[n] + trip_;  // the start of I on the last stage
      const double unallocated = activation_ * left - problem_.memory_limit * (1 + kRounding);
      const double work = backward_ * left + TimeToAllocate(unallocated);
      end = std::max({end, gradient + after_, gradient + work});
    }
    return end;
  }

  const Problem& problem_;
  const std::vector<int>& stages_;
  double activation_ = 0, forward_ = 0, backward_ = 0;  // of one microbatch on the rank
  bool equal_ = true;  // whether all stages take the same memory, until their W
  double least_activation_ = 0, least_forward_ = kNever, least_backward_ = kNever;
  double allocate_rate_ = kNever, free_rate_ = kNever;  // time per amount
  double first_start_ = 0, top_start_ = 0;
  double trip_ = 0;   // from the start of F on the last stage to I's
  double after_ = 0;  // from the start of I on the last stage to the end
};

// Returns a bound that no schedule of the problem is below, in the problem's objective: the memory
// of a rank admits a microbatch only after an earlier one has passed through the rest of the chain
// and its memory has been freed, for which the rank itself must compute.
// Returns 0 for more than one chain.
double InFlightBound(const Problem& problem) {
  if (problem.placement.replicas() > 1 || problem.slices > 1) return 0;
  double bound = 0;
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    bound = std::max(bound, RankBound(problem, rank).Length());
  }
  return bound;
}

// What an overlapped pair takes at least, as a fraction of its two parts one after the other. With
// all times multiplied by it, the pairs of a schedule take no longer than its single actions do, so
// a bound for schedules without pairs then holds for those with pairs.
double LeastPairFraction(const Costs& costs) {
  double least = 1;
  for (const StageCosts& forward : costs.stages) {
    for (const StageCosts& backward : costs.stages) {
      const double both = forward.forward + backward.Backward();
      if (!(both > 0)) continue;
      least = std::min(least, costs.overlap.Price(forward.forward, backward.Backward()) / both);
    }
  }
  return least;
}

}  // namespace

double LengthBound(const Placement& placement, const Costs& costs, int microbatches,
                   double memory_limit, Objective objective, bool split) {
  Costs least = costs;
  const double fraction = LeastPairFraction(costs);
  for (StageCosts& stage : least.stages) {
    // A whole B may take less than I and W.
    const double backward = stage.backward_input + stage.backward_weight;
    const double whole = backward > 0 ? stage.Backward() / backward : 1;
    stage.forward *= fraction;
    stage.backward_input *= fraction * std::min(1.0, whole);
    stage.backward_weight *= fraction * std::min(1.0, whole);
  }
  least.SetCommByLevel(costs.SmallestMessage());
  const Problem problem = {placement,    least,    microbatches / placement.replicas(), 1, split,
                           memory_limit, objective};
  return std::max(LowerBound(problem), InFlightBound(problem));
}

}  // namespace penstock
