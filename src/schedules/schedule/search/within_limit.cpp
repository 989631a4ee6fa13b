#include "schedule/search/within_limit.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/problem/price_lanes.h"

namespace penstock {
namespace {

// The number of smaller limits that are tried for every p microbatches of memory.
constexpr int kLimitsPerRanks = 8;

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

// Keeps the best of what `search` finds within `count` times `step`, `count` - 1 times, and so on
// down to one, except for limits whose lower bound shows that they cannot help.
void SearchSmallerLimits(const Problem& problem, const LaneMaker& search, double step, double count,
                         Best& best) {
  const auto may_help = [&](const Problem& smaller) {
    return LowerBound(smaller) < best.length() * (1 - kRounding);
  };
  // Searches run on all cores, and their results are used in the order of one core, so that the
  // number of cores does not change the result.
  const std::size_t cores = Index(Cores());
  for (;;) {
    std::vector<Problem> wave;
    for (; count >= 1 && wave.size() < cores; --count) {
      Problem smaller = problem;
      smaller.memory_limit = count * step;
      if (!may_help(smaller)) break;
      wave.push_back(smaller);
    }
    if (wave.empty()) return;
    std::vector<std::vector<Lane>> found(wave.size());
    OnAllCores(wave.size(), [&](std::size_t i) { found[i] = search(wave[i]); });
    for (std::size_t i = 0; i < wave.size(); ++i) {
      if (may_help(wave[i])) best.Keep(std::move(found[i]));
    }
  }
}

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
  const double below = std::ceil(most / step * (1 - kRounding)) - 1;
  SearchSmallerLimits(problem, search, step, below, best);
  return best.Take();
}

}  // namespace penstock
