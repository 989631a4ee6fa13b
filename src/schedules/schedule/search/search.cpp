#include "schedule/search/search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "base/result.h"
#include "schedule/search/critical_swaps.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/patterns/pattern_sampler.h"
#include "schedule/search/patterns/repeat_middle.h"
#include "schedule/search/problem/average_times.h"
#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/squeeze.h"
#include "schedule/search/swap_search.h"

namespace penstock {
namespace {

using Direction = SqueezeOptions::Direction;
using WeightsLast = SqueezeOptions::WeightsLast;

// The work of one search with full effort, in actions run: about a seventh of a second on one core.
constexpr double kSearchBudget = 1e6;
constexpr double kMostSearchPasses = 1500;
// The cost of a pass in the order of the lanes, relative to one that lets actions overtake.
constexpr double kPassInOrder = 0.25;
constexpr double kMostListPasses = 40;
// A search ends when it has found nothing better for this many passes and this fraction of all
// passes.
constexpr double kPatience = 300;
constexpr double kPatiencePart = 0.3;
// The effort of a search near good seeds.
constexpr double kLittleEffort = 0.33;
// Searches for short spans take longer, because schedules seldom reach the lower bound.
constexpr double kEffortForSpans = 3;
// The most patterns drawn for each one that is squeezed.
constexpr double kDrawsPerPass = 100;
// Number of candidates kept in addition to the best.
constexpr std::size_t kPoolSize = 8;
// A candidate within this fraction of the best may become the best by squeezing from both ends.
constexpr double kNear = 0.05;
// With many microbatches: the fraction of the effort for a search with few, and the fraction of its
// own passes that is left for patterns and local search after that.
constexpr double kPartForFew = 1;
constexpr double kPartForMany = 0.6;
// Passes of the final local search, as a fraction of the others.
constexpr double kPartForPolish = 0.6;
// With fewer passes the local search is not worth its setup.
constexpr double kFewestPolishPasses = 4;
// Swaps on critical paths: their number in the time of one pass, this time as a fraction of all
// passes, and how many of them may find nothing better.
constexpr double kSwapsPerPass = 8;
constexpr double kPartForSwaps = 1;
constexpr double kPatienceForSwaps = 1000;
// The local search squeezes one change in this many from both ends.
constexpr int kToAndFroOneIn = 3;
// Places in the schedule with few microbatches, as fractions of its makespan, whose repetition is
// tried.
constexpr std::array<double, 5> kMiddles = {0.5, 0.4, 0.6, 0.3, 0.7};

// The ways to squeeze from the start. Rounds from both ends cycle through them.
constexpr std::array<SqueezeOptions, 11> kSearchWays = {{
    {Direction::kFromStart, WeightsLast::kInDrain, 0, true},
    {Direction::kFromStart, WeightsLast::kNever, 0, true},
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

double ActionsOf(const Problem& problem) {
  return (problem.split ? 3.0 : 2.0) * problem.placement.stages() * problem.indices;
}

struct Candidate {
  double length = kNever;  // the makespan or the longest span, as the objective says
  double other_length = kNever;
  double peak_memory = kNever;
  std::vector<Lane> lanes;

  bool BetterThan(const Candidate& other) const {
    if (other.length == kNever) return length < kNever;
    const double slack = kRounding * other.length;
    if (std::abs(length - other.length) > slack) return length < other.length;
    if (std::abs(other_length - other.other_length) > slack) {
      return other_length < other.other_length;
    }
    return peak_memory < other.peak_memory - slack;
  }
};

// Forwards ahead of what a round trip needs that are tried, the most useful first.
constexpr std::array<double, 8> kForwardsAhead = {0, 0.5, 1, -0.5, 0.25, 0.75, -0.25, 1.5};

class Search {
 public:
  // Runs about `effort` * kSearchBudget actions.
  Search(const Problem& problem, double effort)
      : problem_(problem),
        averages_(AverageTimes(problem)),
        equal_times_(HasEqualTimes(problem)),
        squeezer_(problem),
        average_squeezer_({problem.placement, averages_, problem.indices, problem.slices,
                           problem.split, problem.memory_limit, problem.objective}),
        lower_bound_(LowerBound(problem)) {
    passes_ = effort * WorkOf(problem) / ActionsOf(problem);
    patience_ = effort * kPatience;
    window_ = 16 * problem.placement.chunks();
  }

  // Squeezes each seed in its order, and in several ways that together take a sixth of the passes.
  // With fewer passes than seeds, squeezes only the best of them in one way.
  void AddSeeds(const Seeds& seeds) {
    const auto count = static_cast<double>(std::max<std::size_t>(1, seeds.size()));
    const double ways = passes_ < count ? 0 : passes_ / 6 / count;
    for (const auto& lanes : seeds) {
      if (Done()) return;
      if (PeakMemory(problem_, lanes) > problem_.memory_limit * (1 + kRounding)) continue;
      SqueezeInOrder(lanes);
      for (std::size_t i = 0; i < kSearchWays.size() && static_cast<double>(i) < ways; ++i) {
        SqueezeBothTimes(lanes, kSearchWays[i]);
      }
    }
    if (ways == 0 && best_.length < kNever)
      SqueezeBothTimes(Candidate(best_).lanes, kSearchWays[0]);
  }

  // List scheduling with as many forwards in flight on each rank as it starts until the first
  // backward returns: then no rank idles in the fill, and no forward delays a backward later. Spans
  // are short, and with enough memory so is the makespan. For one stage per rank.
  void AddRoundTrips(double passes) {
    const Placement& placement = problem_.placement;
    if (!problem_.split || placement.stages() != placement.ranks() || problem_.slices > 1) return;
    ListScheduler scheduler(problem_);
    ListRule rule = ListRule::BackwardFirst(placement, problem_.indices);
    for (std::size_t i = 0; i < kForwardsAhead.size() && static_cast<double>(i) < passes; ++i) {
      rule.most_ahead = ForwardsInRoundTrips(kForwardsAhead[i]);
      const double makespan = scheduler.Run(rule);
      ++used_;
      Add(Make(makespan, scheduler));
    }
  }

  // List scheduling with several windows of microbatches in flight.
  void AddListSchedules(double passes) {
    if (passes < 2 && best_.length < kNever) return;
    ListScheduler scheduler(problem_);
    const double most =
        std::min<double>(problem_.indices, 3 * problem_.memory_limit /
                                               LeastMemory(problem_.placement, problem_.costs));
    const double windows = std::max(1.0, std::floor(passes / 2));
    ListRule rule = ListRule::BackwardFirst(problem_.placement, problem_.indices);
    int previous = 0;
    for (double i = 1; i <= windows && !Done(); ++i) {
      const int window = std::max(1, static_cast<int>(std::ceil(most * i / windows)));
      if (window == previous) continue;
      previous = rule.window = window;
      for (const double patience : {0.0, 0.5}) {
        rule.patience = patience;
        const double makespan = scheduler.Run(rule);
        ++used_;
        Add(Make(makespan, scheduler));
      }
    }
  }

  // Uses what was found for another number of microbatches.
  void AddFrom(Search& few) {
    const std::vector<Candidate> pool = few.pool_;
    for (const Candidate& candidate : pool) {
      for (const double middle : kMiddles) {
        if (Done() || used_ >= passes_) return;
        const std::vector<Lane> lanes =
            RepeatMiddle(candidate.lanes, few.PlacesAt(candidate, middle),
                         problem_.indices - few.problem_.indices);
        if (lanes.empty()) continue;
        SqueezeInOrder(lanes);
        if (latest_.length <= best_.length * (1 + kNear)) GoToAndFro(latest_);
      }
    }
  }

  // Until `passes` are used: draws patterns, squeezes them, and squeezes those near the best from
  // both ends.
  void Explore(double passes) {
    PatternSampler sampler(problem_);
    // Checking memory is cheap compared with a pass over all actions.
    int draws_left = static_cast<int>(kDrawsPerPass * (passes - used_));
    while (used_ < passes && draws_left-- > 0 && !Done() && !HasStalled()) {
      const PeriodPattern pattern = sampler.Draw();
      const std::size_t way = sampler.rng().Below(kSearchWays.size());
      const bool in_equal_times = !equal_times_ && sampler.rng().Below(2) == 0;
      if (!FitsMemory(problem_, pattern)) {
        sampler.Rejected();
        continue;
      }
      sampler.Accepted();
      const double before = best_.length;
      const std::vector<Lane> lanes = LanesOf(problem_, pattern);
      if (in_equal_times) {
        SqueezeInEqualTimes(lanes, kSearchWays[way]);
      } else {
        Squeeze(lanes, kSearchWays[way]);
      }
      if (latest_.length <= best_.length * (1 + kNear)) GoToAndFro(latest_);
      if (best_.length < before) sampler.MarkLastAsBest();
    }
  }

  // Squeezes each candidate of the pool from both ends.
  void ImprovePool() {
    const std::vector<Candidate> pool = pool_;
    for (const Candidate& candidate : pool) GoToAndFro(candidate);
  }

  // Swaps two adjacent actions on the critical path of the best, squeezes the result (sometimes
  // from both ends), and continues from there if it is no longer.
  void Polish(double passes) {
    if (passes < kFewestPolishPasses) return;
    Candidate current = best_;
    std::vector<Swap> swaps;
    found_at_ = used_;
    for (const double end = used_ + passes; used_ < end && !Done() && !HasStalled();) {
      if (swaps.empty()) {
        squeezer_.Run(current.lanes, InOrder());
        used_ += kPassInOrder;
        swaps = CriticalSwaps(problem_, squeezer_, current.lanes);
        if (swaps.empty()) return;
      }
      std::vector<Lane> lanes = current.lanes;
      Apply(swaps[rng_.Below(static_cast<int>(swaps.size()))], lanes);
      used_ += 0.1;  // so that the loop ends even if no swap fits the memory
      if (PeakMemory(problem_, lanes) > problem_.memory_limit * (1 + kRounding)) continue;
      const Candidate next = rng_.Below(kToAndFroOneIn) == 0 ? ToAndFro(lanes) : Forth(lanes);
      if (next.length > current.length * (1 + kRounding)) continue;
      current = next;
      swaps.clear();
      Keep(current);
    }
  }

  // Swaps actions on the critical paths of the candidates (swap_search.h), best first, and squeezes
  // what is shorter from both ends.
  void SwapCritical(double passes) {
    if (problem_.objective != Objective::kMakespan || passes < kFewestPolishPasses || Done())
      return;
    SwapSearch search(problem_);
    const std::vector<Candidate> pool = pool_;
    double moves = passes * kSwapsPerPass;
    for (const Candidate& candidate : pool) {
      if (Done() || moves < 1) return;
      const std::vector<Lane> lanes =
          search.Run(candidate.lanes, moves, kPatienceForSwaps, lower_bound_);
      moves -= search.moves();
      if (search.makespan() >= candidate.length * (1 - kRounding)) continue;
      SqueezeInOrder(lanes);
      GoToAndFro(latest_);
    }
  }

  bool Done() const { return best_.length <= lower_bound_ * (1 + kRounding); }
  double passes() const { return passes_; }
  std::vector<Lane> TakeBest() {
    PENSTOCK_CHECK(best_.length < kNever, "no schedule fits the memory limit");
    return std::move(best_.lanes);
  }

 private:
  // Sets `made` to the result of a ListScheduler or Squeezer. Reuses its memory.
  template <class Scheduler>
  void Set(Candidate& made, double makespan, const Scheduler& run) const {
    made.length = makespan;
    made.other_length = makespan < kNever ? run.longest_span() : kNever;
    if (problem_.objective == Objective::kSpan) std::swap(made.length, made.other_length);
    made.peak_memory = run.peak_memory();
    made.lanes = run.lanes();
  }
  template <class Scheduler>
  Candidate Make(double makespan, const Scheduler& run) const {
    Candidate made;
    Set(made, makespan, run);
    return made;
  }

  // By stage: the forwards that fit between the start of the first one and its backward.
  std::vector<int> ForwardsInRoundTrips(double more) const {
    const std::vector<StageCosts>& stages = problem_.costs.stages;
    std::vector<int> counts(stages.size());
    double trip = 0;  // from the end of the stage's F to the start of its I
    for (std::size_t s = stages.size(); s-- > 0;) {
      const double forward = stages[s].forward;
      const double fit = forward > 0 ? trip / forward : problem_.indices;
      counts[s] = static_cast<int>(std::clamp<double>(1 + fit + more, 1, problem_.indices));
      const double comm = CommBetween(problem_, problem_.placement.previous(static_cast<int>(s)),
                                      static_cast<int>(s));
      trip += forward + stages[s].backward_input + 2 * comm;
    }
    return counts;
  }

  static SqueezeOptions InOrder() {
    SqueezeOptions options;
    options.window = 1;
    return options;
  }

  void SqueezeInOrder(const std::vector<Lane>& lanes) { Run(lanes, InOrder()); }

  void Squeeze(const std::vector<Lane>& lanes, SqueezeOptions way) {
    way.window = window_;
    Run(lanes, way);
  }

  // Squeezes as if all actions took the same time, which preserves the order of patterns for F = I
  // = W.
  void SqueezeInEqualTimes(const std::vector<Lane>& lanes, SqueezeOptions way) {
    way.window = window_;
    latest_ = {};
    if (average_squeezer_.Run(lanes, way) < kNever) SqueezeInOrder(average_squeezer_.lanes());
  }

  // Squeezes with the real times and, if they differ, with equal ones.
  void SqueezeBothTimes(const std::vector<Lane>& lanes, const SqueezeOptions& way) {
    if (!Done()) Squeeze(lanes, way);
    if (!Done() && !equal_times_) SqueezeInEqualTimes(lanes, way);
  }

  // Requires: `lanes` is not latest_.lanes.
  void Run(const std::vector<Lane>& lanes, const SqueezeOptions& options) {
    used_ += options.window == 1 ? kPassInOrder : 1;
    const double makespan = squeezer_.Run(lanes, options);
    Set(latest_, makespan, squeezer_);
    Add(latest_);
  }

  static void Apply(const Swap& swap, std::vector<Lane>& lanes) {
    Lane& lane = lanes[swap.rank];
    std::swap(lane[swap.position], lane[swap.position + 1]);
  }

  // Squeezes from the start, in a random way.
  Candidate Forth(const std::vector<Lane>& lanes) {
    SqueezeOptions way = kSearchWays[rng_.Below(kSearchWays.size())];
    way.window = rng_.Below(3) == 0 ? 1 : window_;
    const double makespan = squeezer_.Run(lanes, way);
    ++used_;
    return Make(makespan, squeezer_);
  }

  // Squeezes from the end, then from the start in the next way.
  Candidate ToAndFro(const std::vector<Lane>& lanes) {
    SqueezeOptions back;
    back.direction = Direction::kFromEnd;
    back.patience = way_ % 2 == 0 ? 0 : 0.5;
    back.window = window_;
    if (squeezer_.Run(lanes, back) == kNever) return {};
    const std::vector<Lane> moved = squeezer_.lanes();
    SqueezeOptions forth = kSearchWays[way_++ % kSearchWays.size()];
    forth.window = window_;
    const double makespan = squeezer_.Run(moved, forth);
    used_ += 2;
    return Make(makespan, squeezer_);
  }

  // Squeezes alternately from both ends until that does not help any more.
  void GoToAndFro(Candidate current) {
    Candidate shortest = current;
    for (bool helped = true; helped && !Done() && used_ < passes_;) {
      current = ToAndFro(current.lanes);
      helped = current.length < shortest.length * (1 - kRounding);
      if (current.BetterThan(shortest)) shortest = current;
      Keep(current);
    }
    Add(shortest);
  }

  // The position that each rank has reached at a fraction of the candidate's makespan.
  std::vector<std::size_t> PlacesAt(const Candidate& candidate, double part) {
    const double makespan = squeezer_.Run(candidate.lanes, InOrder());
    std::vector<std::size_t> places;
    for (const Lane& lane : candidate.lanes) {
      const auto reached = std::partition_point(lane.begin(), lane.end(), [&](const Action& a) {
        return squeezer_.EndOf(a.first) <= part * makespan;
      });
      places.push_back(Index(reached - lane.begin()));
    }
    return places;
  }

  bool HasStalled() const { return used_ - found_at_ > std::max(patience_, kPatiencePart * used_); }

  void Keep(const Candidate& candidate) {
    if (!candidate.BetterThan(best_)) return;
    best_ = candidate;
    found_at_ = used_;
  }

  // Keeps the best candidates, one per length.
  void Add(const Candidate& candidate) {
    if (candidate.length == kNever) return;
    Keep(candidate);
    const auto place = std::find_if(pool_.begin(), pool_.end(), [&](const Candidate& other) {
      return !other.BetterThan(candidate);
    });
    if (place == pool_.end() ? pool_.size() == kPoolSize : !candidate.BetterThan(*place)) return;
    const auto index = place - pool_.begin();
    if (pool_.size() == kPoolSize) {
      pool_.back() = candidate;
    } else {
      pool_.push_back(candidate);
    }
    std::rotate(pool_.begin() + index, pool_.end() - 1, pool_.end());
  }

  const Problem& problem_;
  const Costs averages_;
  const bool equal_times_;
  Squeezer squeezer_;
  Squeezer average_squeezer_;
  const double lower_bound_;
  double passes_ = 0, patience_ = 0, used_ = 0, found_at_ = 0;
  int window_ = 0;
  std::size_t way_ = 0;
  Rng rng_;
  Candidate best_, latest_;
  std::vector<Candidate> pool_;  // best first
};

// The number of microbatches that shows a schedule's fill, steady state and drain.
int FewMicrobatches(const Problem& problem) { return 2 * problem.placement.ranks() + 4; }

void SearchAll(Search& search, const Seeds& seeds) {
  search.AddRoundTrips(search.passes() / 8);
  search.AddSeeds(seeds);
  search.AddListSchedules(std::min(search.passes() / 8, kMostListPasses));
  search.ImprovePool();
}

}  // namespace

double WorkOf(const Problem& problem) {
  return std::min(kSearchBudget, kMostSearchPasses * ActionsOf(problem));
}

std::vector<Lane> SearchLanes(const Problem& problem, const SeedMaker& seeds, double effort) {
  effort *= problem.effort;
  if (problem.objective == Objective::kSpan) effort *= kEffortForSpans;
  Search search(problem, effort);
  SearchAll(search, seeds(problem));
  Problem few = problem;
  few.indices = FewMicrobatches(problem);
  double part = 1;
  if (!search.Done() && few.indices != problem.indices && search.passes() > 4) {
    Search few_search(few, effort * kPartForFew);
    SearchAll(few_search, seeds(few));
    few_search.Explore(few_search.passes());
    few_search.Polish(kPartForPolish * few_search.passes());
    search.AddFrom(few_search);
    part = kPartForMany;
  }
  search.Explore(part * search.passes());
  search.Polish(part * kPartForPolish * search.passes());
  if (effort >= 1) search.SwapCritical(kPartForSwaps * search.passes());
  return search.TakeBest();
}

std::vector<Lane> SearchNear(const SeedMaker& seeds, const Problem& problem, double microbatches) {
  const Costs costs = CountingMicrobatches(problem.costs, problem.placement, problem.slices);
  return SearchLanes({problem.placement, costs, problem.indices, problem.slices, problem.split,
                      microbatches, problem.objective},
                     seeds, kLittleEffort);
}

}  // namespace penstock
