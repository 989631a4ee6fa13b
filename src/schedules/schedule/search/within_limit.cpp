#include "schedule/search/within_limit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/problem/memory_limit.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/search.h"

namespace penstock {
namespace {

// The number of limits that are searched with full effort for every p microbatches of memory.
constexpr int kLimitsPerRanks = 8;
// The number of limits between two of these, or between two microbatches with fewer ranks; as far
// as the amounts that a rank can hold differ.
constexpr double kFineLimits = 16;
// Up to this many microbatches times p; more memory seldom helps.
constexpr double kMostFineInRanks = 2;
// The work of all searches within limits in between, in actions run: a tenth of a second on one
// core.
constexpr double kFineWork = 1e6;

// The best lanes so far.
class Best {
 public:
  explicit Best(const Problem& problem) : problem_(problem) {}

  void Keep(std::vector<Lane> lanes) {
    if (PeakMemory(problem_, lanes) > problem_.memory_limit * (1 + kRounding)) return;
    const LanePrice price = PriceLanes(problem_, lanes);
    if (!Better(price)) return;
    price_ = price;
    lanes_ = std::move(lanes);
  }

  double length() const {
    return problem_.objective == Objective::kSpan ? price_.longest_span : price_.makespan;
  }
  std::vector<Lane> Take() { return std::move(lanes_); }

 private:
  bool Better(const LanePrice& price) const {
    if (lanes_.empty()) return true;
    double LanePrice::*const first =
        problem_.objective == Objective::kSpan ? &LanePrice::longest_span : &LanePrice::makespan;
    double LanePrice::*const second =
        problem_.objective == Objective::kSpan ? &LanePrice::makespan : &LanePrice::longest_span;
    for (double LanePrice::*const figure : {first, second, &LanePrice::peak_memory}) {
      const double slack = kRounding * std::abs(price_.*figure);
      if (std::abs(price.*figure - price_.*figure) > slack) return price.*figure < price_.*figure;
    }
    return false;
  }

  const Problem& problem_;
  LanePrice price_;
  std::vector<Lane> lanes_;
};

// The limits that searches use whatever limit is asked for, so that more memory is never worse.
class Limits {
 public:
  explicit Limits(const Problem& problem)
      : problem_(problem),
        least_(LeastMemory(problem.placement, problem.costs, problem.slices)),
        coarse_(least_ * std::max(1, problem.placement.ranks() / kLimitsPerRanks)) {
    const double ranks = problem.placement.ranks();
    const double fine = least_ * std::max(1.0, ranks / kLimitsPerRanks) / kFineLimits;
    const double top = least_ * std::min<double>(problem.indices, kMostFineInRanks * ranks);
    for (double count = std::ceil(least_ / fine); count * fine <= top * (1 + kRounding); ++count) {
      Add(count * fine);
    }
    for (double count = 1; count * coarse_ <= least_ * problem.indices * (1 + kRounding); ++count) {
      Add(count * coarse_);
    }
    std::ranges::sort(amounts_);
    const auto same = [](double a, double b) { return b - a <= kRounding * b; };
    amounts_.erase(std::unique(amounts_.begin(), amounts_.end(), same), amounts_.end());
    const double work = WorkOf(problem) * static_cast<double>(amounts_.size());
    fine_effort_ = std::min(1.0, kFineWork / work);
  }

  // The problem within the largest of the limits up to its own, or within its own, with full
  // effort. So where others have less (beyond kFineWork), more memory may be worse by what effort
  // finds.
  Problem First() const {
    const double own = problem_.memory_limit;
    const double amount = AmountWithin(own, problem_.costs, problem_.indices, problem_.split);
    const auto next = std::ranges::upper_bound(amounts_, amount * (1 + kRounding));
    const bool known = next != amounts_.begin() && *std::prev(next) >= amount * (1 - kRounding);
    Problem first = Within(known ? *std::prev(next) : amount);
    first.effort = problem_.effort;
    return first;
  }
  // The problems within smaller limits than `limit`, largest first.
  std::vector<Problem> Below(double limit) const {
    std::vector<Problem> problems;
    for (std::size_t i = amounts_.size(); i-- > 0;) {
      if (amounts_[i] < limit * (1 - kRounding)) problems.push_back(Within(amounts_[i]));
    }
    return problems;
  }

 private:
  void Add(double limit) {
    const double amount = AmountWithin(limit, problem_.costs, problem_.indices, problem_.split);
    if (amount >= least_ * (1 - kRounding)) amounts_.push_back(amount);
  }

  Problem Within(double limit) const {
    Problem problem = problem_;
    problem.memory_limit = limit;
    const double count = limit / coarse_;
    const bool is_coarse = std::abs(count - std::round(count)) <= kRounding * count;
    const bool is_beyond = amounts_.empty() || limit > amounts_.back() * (1 + kRounding);
    if (!is_coarse && !is_beyond) problem.effort *= fine_effort_;
    return problem;
  }

  const Problem& problem_;
  const double least_, coarse_;
  double fine_effort_ = 1;
  std::vector<double> amounts_;  // ascending
};

// Keeps the best of what `search` finds within each of the problems, whose limits descend, except
// for limits whose lower bound shows that they cannot help.
void SearchSmallerLimits(const std::vector<Problem>& problems, const LaneMaker& search,
                         Best& best) {
  const auto may_help = [&](const Problem& smaller) {
    return LowerBound(smaller) < best.length() * (1 - kRounding);
  };
  // Searches run on all cores, and their results are used in the order of one core, so that the
  // number of cores does not change the result.
  const std::size_t cores = Index(Cores());
  for (std::size_t begin = 0; begin < problems.size();) {
    std::size_t end = begin;
    while (end < problems.size() && end - begin < cores && may_help(problems[end])) ++end;
    if (end == begin) return;
    std::vector<std::vector<Lane>> found(end - begin);
    OnAllCores(found.size(), [&](std::size_t i) { found[i] = search(problems[begin + i]); });
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (may_help(problems[begin + i])) best.Keep(std::move(found[i]));
    }
    begin = end;
  }
}

}  // namespace

std::vector<Lane> BestWithinLimit(const Problem& problem, const LaneMaker& search,
                                  std::vector<std::vector<Lane>> known) {
  Best best(problem);
  const double least = LeastMemory(problem.placement, problem.costs, problem.slices);
  if (!(least > 0)) {
    best.Keep(search(problem));
    for (std::vector<Lane>& lanes : known) best.Keep(std::move(lanes));
    return best.Take();
  }
  const Limits limits(problem);
  const Problem first = limits.First();
  best.Keep(search(first));
  for (std::vector<Lane>& lanes : known) best.Keep(std::move(lanes));
  SearchSmallerLimits(limits.Below(first.memory_limit), search, best);
  return best.Take();
}

}  // namespace penstock
