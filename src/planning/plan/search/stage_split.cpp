#include "plan/search/stage_split.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "plan/search/pricing.h"

namespace penstock {
namespace {

constexpr int kMostRounds = 8;
constexpr std::size_t kEnds = 2;  // busiest and idlest ranks between which layers move

std::vector<double> SumsOf(const std::vector<double>& layer_times) {
  std::vector<double> until(layer_times.size() + 1, 0);
  std::partial_sum(layer_times.begin(), layer_times.end(), until.begin() + 1);
  return until;
}

// Moves layers between stages so that the busiest rank has less to do.
class Balance {
 public:
  Balance(const std::vector<double>& layer_times, const Placement& placement,
          const std::vector<double>& rank_times)
      : until_(SumsOf(layer_times)),
        placement_(placement),
        factors_(FactorsOf(placement, rank_times)),
        counts_(ShortestBottleneck(layer_times, factors_)) {}

  std::vector<int> Take() {
    Load load = LoadOf(counts_);
    while (Improve(load)) continue;
    return std::move(counts_);
  }

 private:
  // Compared by the busiest rank, then by how unequal all are.
  struct Load {
    double most = 0, squares = 0;
    bool IsLess(const Load& other) const {
      constexpr double kRounding = 1e-9;
      if (most < other.most * (1 - kRounding)) return true;
      return most <= other.most * (1 + kRounding) && squares < other.squares * (1 - kRounding);
    }
  };

  static std::vector<double> FactorsOf(const Placement& placement,
                                       const std::vector<double>& rank_times) {
    std::vector<double> factors(Index(placement.chain_length()), 1);
    for (int stage = 0; stage < placement.chain_length() && !rank_times.empty(); ++stage) {
      factors[Index(stage)] = rank_times[Index(placement.rank_of(stage))] / rank_times.front();
    }
    return factors;
  }

  std::vector<double> RanksOf(const std::vector<int>& counts) const {
    std::vector<double> stages;
    std::size_t begin = 0;
    for (const int count : counts) {
      const double factor = factors_[stages.size()];
      stages.push_back(factor * (until_[begin + Index(count)] - until_[begin]));
      begin += Index(count);
    }
    std::vector<double> ranks(Index(placement_.ranks()));
    for (int stage = 0; stage < placement_.stages(); ++stage) {
      ranks[Index(placement_.rank_of(stage))] += stages[Index(placement_.model_stage(stage))];
    }
    return ranks;
  }
  Load LoadOf(const std::vector<int>& counts) const {
    Load load;
    for (const double rank : RanksOf(counts)) {
      load.most = std::max(load.most, rank);
      load.squares += rank * rank;
    }
    return load;
  }

  // Makes the best move of a layer from the busiest rank; returns whether there is one.
  bool Improve(Load& load) {
    const std::vector<double> ranks = RanksOf(counts_);
    const auto busiest = std::ranges::max_element(ranks) - ranks.begin();
    std::vector<int> best;
    for (const int stage : placement_.stages_of(static_cast<int>(busiest))) {
      const auto from = Index(placement_.model_stage(stage));
      if (counts_[from] == 1) continue;
      for (std::size_t to = 0; to < counts_.size(); ++to) {
        if (to == from) continue;
        std::vector<int> moved = counts_;
        --moved[from];
        ++moved[to];
        const Load after = LoadOf(moved);
        if (!after.IsLess(load)) continue;
        load = after;
        best = std::move(moved);
      }
    }
    if (best.empty()) return false;
    counts_ = std::move(best);
    return true;
  }

  std::vector<double> until_;
  const Placement& placement_;
  std::vector<double> factors_;  // of the time of a layer, by stage
  std::vector<int> counts_;
};

class SplitSearch {
 public:
  SplitSearch(const TrainingPlan& plan, const std::function<bool(const TrainingPlan&)>& fits,
              std::size_t& priced)
      : best_(plan), fits_(fits), priced_(priced) {}

  TrainingPlan Take() {
    for (int round = 0; round < kMostRounds; ++round) {
      if (!Try(Neighbors())) break;
    }
    return std::move(best_);
  }

 private:
  // Keeps the shortest; returns whether one is shorter than what is kept.
  bool Try(const std::vector<std::vector<int>>& splits) {
    std::vector<std::optional<TrainingPlan>> plans(splits.size());
    OnAllCores(splits.size(), [&](std::size_t i) {
      auto plan = PriceOf(best_.scenario, best_.division,
                          {.name = best_.schedule,
                           .chunks = best_.chunks,
                           .slices = best_.slices,
                           .layers = splits[i]});
      if (!plan) return;
      plans[i] = *std::move(plan);
      plans[i]->overlap = best_.overlap;  // which its scenario may lack
      plans[i]->framework = best_.framework;
    });
    priced_ += splits.size();
    bool improved = false;
    for (std::optional<TrainingPlan>& plan : plans) {
      if (!plan || !fits_(*plan) || plan->step_time() >= best_.step_time()) continue;
      best_ = *std::move(plan);
      improved = true;
    }
    return improved;
  }

  // Splits with one layer less on a busy rank and one more on an idle one. Layers between the two
  // stages move along.
  std::vector<std::vector<int>> Neighbors() const {
    std::vector<std::size_t> ranks(best_.rank_busy.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    std::ranges::stable_sort(ranks, std::greater(),
                             [&](std::size_t rank) { return best_.rank_busy[rank]; });
    const std::size_t ends = std::min(kEnds, ranks.size() / 2);
    std::vector<std::vector<int>> all;
    for (std::size_t busy = 0; busy < ends; ++busy) {
      for (std::size_t idle = 0; idle < ends; ++idle) {
        AddMoves(ranks[busy], ranks[ranks.size() - 1 - idle], all);
      }
    }
    return all;
  }
  void AddMoves(std::size_t busy, std::size_t idle, std::vector<std::vector<int>>& all) const {
    for (std::size_t from = 0; from < best_.layers.size(); ++from) {
      if (!IsOn(from, busy) || best_.layers[from] == 1) continue;
      for (std::size_t to = 0; to < best_.layers.size(); ++to) {
        if (!IsOn(to, idle) || to == from) continue;
        all.push_back(best_.layers);
        --all.back()[from];
        ++all.back()[to];
      }
    }
  }
  bool IsOn(std::size_t model_stage, std::size_t rank) const {
    return std::ranges::any_of(best_.placement.stages_of(static_cast<int>(rank)), [&](int stage) {
      return Index(best_.placement.model_stage(stage)) == model_stage;
    });
  }

  TrainingPlan best_;
  const std::function<bool(const TrainingPlan&)>& fits_;
  std::size_t& priced_;
};

}  // namespace

std::vector<int> ShortestBottleneck(const std::vector<double>& layer_times,
                                    const std::vector<double>& stage_factors) {
  const auto stages = static_cast<int>(stage_factors.size());
  const std::vector<double> until = SumsOf(layer_times);
  const std::size_t layers = layer_times.size();
  // longest[s][n]: the longest of s stages that have the first n layers.
  const double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> longest(Index(stages) + 1,
                                           std::vector<double>(layers + 1, kNone));
  std::vector<std::vector<std::size_t>> cut(Index(stages) + 1,
                                            std::vector<std::size_t>(layers + 1));
  longest[0][0] = 0;
  for (std::size_t stage = 1; stage <= Index(stages); ++stage) {
    for (std::size_t end = stage; end <= layers; ++end) {
      // From the shortest last stage to longer ones, which only get worse once they dominate.
      for (std::size_t begin = end; begin-- > stage - 1;) {
        const double last = stage_factors[stage - 1] * (until[end] - until[begin]);
        if (last >= longest[stage][end]) break;
        const double time = std::max(longest[stage - 1][begin], last);
        if (time >= longest[stage][end]) continue;
        longest[stage][end] = time;
        cut[stage][end] = begin;
      }
    }
  }
  std::vector<int> counts(Index(stages));
  std::size_t end = layers;
  for (std::size_t stage = Index(stages); stage > 0; --stage) {
    counts[stage - 1] = static_cast<int>(end - cut[stage][end]);
    end = cut[stage][end];
  }
  return counts;
}

std::vector<int> BalancedLayers(const std::vector<double>& layer_times, const Placement& placement,
                                const std::vector<double>& rank_times) {
  return Balance(layer_times, placement, rank_times).Take();
}

TrainingPlan WithBestSplit(const TrainingPlan& plan,
                           const std::function<bool(const TrainingPlan&)>& fits,
                           std::size_t& priced) {
  if (plan.layers.size() < 2) return plan;
  return SplitSearch(plan, fits, priced).Take();
}

}  // namespace penstock
