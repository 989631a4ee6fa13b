#include "schedule/search/within_limit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/problem/price_lanes.h"

namespace penstock {
namespace {

// The number of smaller limits that are tried for every p microbatches of memory.
constexpr int kLimitsPerRanks = 8;
// The most forwards of a problem for which all of them are tried; otherwise only the largest one,
// because a search takes seconds.
constexpr int kMostForwards = 128;

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

}  // namespace

std::vector<Lane> BestWithinLimit(const Problem& problem, const LaneMaker& search,
                                  std::vector<std::vector<Lane>> known) {
  Best best(problem);
  best.Keep(search(problem));
  for (std::vector<Lane>& lanes : known) best.Keep(std::move(lanes));
  const double least = LeastMemory(problem.placement, problem.costs, problem.slices);
  if (!(least > 0)) return best.Take();
  const double step = least * std::max(1, problem.placement.ranks() / kLimitsPerRanks);
  const double most = std::min(problem.memory_limit, least * problem.indices);
  const bool tries_all = problem.placement.stages() * problem.indices <= kMostForwards;
  const double largest = std::ceil(most / step * (1 - kRounding)) - 1;
  const double smallest = tries_all ? 1 : std::max(1.0, largest);
  for (double count = largest; count >= smallest; --count) {
    Problem smaller = problem;
    smaller.memory_limit = count * step;
    if (LowerBound(smaller) >= best.length() * (1 - kRounding)) break;
    best.Keep(search(smaller));
  }
  return best.Take();
}

}  // namespace penstock
