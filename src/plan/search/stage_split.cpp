#include "plan/search/stage_split.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "analytic/model_costs.h"
#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "plan/search/pricing.h"

namespace penstock {
namespace {

constexpr int kMostRounds = 8;

// Times of F and B of every layer, with the embedding and the head in the first and the last.
Result<std::vector<double>> LayerTimes(const Scenario& scenario) {
  PENSTOCK_TRY(ModelOnCluster model, scenario.Load());
  model.layout.clear();
  const int layers = model.shape.layers;
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, {.stages = layers}));
  std::vector<double> times;
  for (const StageCosts& layer : costs.stages) times.push_back(layer.forward + layer.Backward());
  return times;
}

class SplitSearch {
 public:
  SplitSearch(const TrainingPlan& plan, const std::function<bool(const TrainingPlan&)>& fits)
      : best_(plan), fits_(fits) {}

  TrainingPlan Take(std::vector<int> layers, const std::vector<double>& times) {
    Try({layers, ShortestBottleneck(times, static_cast<int>(layers.size()))});
    for (int round = 0; round < kMostRounds; ++round) {
      if (!Try(Neighbors(counts_.empty() ? layers : counts_))) break;
    }
    return std::move(best_);
  }

 private:
  // Keeps the shortest; returns whether one is shorter than what is kept.
  bool Try(const std::vector<std::vector<int>>& splits) {
    std::vector<std::optional<TrainingPlan>> plans(splits.size());
    OnAllCores(splits.size(), [&](std::size_t i) { plans[i] = PlanWith(splits[i]); });
    bool improved = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!plans[i] || !fits_(*plans[i])) continue;
      if (plans[i]->step_time() >= best_.step_time()) continue;
      best_ = *std::move(plans[i]);
      counts_ = splits[i];
      improved = true;
    }
    return improved;
  }

  std::optional<TrainingPlan> PlanWith(const std::vector<int>& counts) const {
    Scenario base = best_.scenario;
    base.layout = fmt::format("{}", fmt::join(counts, ","));
    auto plan = PriceOf(base, best_.division,
                        {.name = best_.schedule, .chunks = best_.chunks, .slices = best_.slices});
    if (!plan) return {};
    return *std::move(plan);
  }

  static std::vector<std::vector<int>> Neighbors(const std::vector<int>& counts) {
    std::vector<std::vector<int>> all;
    for (std::size_t from = 0; from < counts.size(); ++from) {
      if (counts[from] == 1) continue;
      for (std::size_t to = 0; to < counts.size(); ++to) {
        // Layers between the two stages move along.
        const bool is_near = to + 1 == from || from + 1 == to;
        const bool is_end =
            to == 0 || to + 1 == counts.size() || from == 0 || from + 1 == counts.size();
        if (to == from || !(is_near || is_end)) continue;
        all.push_back(counts);
        --all.back()[from];
        ++all.back()[to];
      }
    }
    return all;
  }

  TrainingPlan best_;
  std::vector<int> counts_;
  const std::function<bool(const TrainingPlan&)>& fits_;
};

}  // namespace

std::vector<int> ShortestBottleneck(const std::vector<double>& layer_times, int stages) {
  const std::size_t layers = layer_times.size();
  std::vector<double> until(layers + 1, 0);
  std::partial_sum(layer_times.begin(), layer_times.end(), until.begin() + 1);
  // longest[s][n]: the longest of s stages that have the first n layers.
  const double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> longest(Index(stages) + 1,
                                           std::vector<double>(layers + 1, kNone));
  std::vector<std::vector<std::size_t>> cut(Index(stages) + 1,
                                            std::vector<std::size_t>(layers + 1));
  longest[0][0] = 0;
  for (std::size_t stage = 1; stage <= Index(stages); ++stage) {
    for (std::size_t end = stage; end <= layers; ++end) {
      for (std::size_t begin = stage - 1; begin < end; ++begin) {
        const double time = std::max(longest[stage - 1][begin], until[end] - until[begin]);
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

TrainingPlan WithBestSplit(const TrainingPlan& plan,
                           const std::function<bool(const TrainingPlan&)>& fits) {
  const int stages = plan.division.pipeline * plan.chunks;
  if (plan.scenario.layout || stages == 1) return plan;
  const auto times = LayerTimes(plan.scenario);
  if (!times || times->size() < Index(stages)) return plan;
  std::vector<int> even(Index(stages), static_cast<int>(times->size()) / stages);
  for (std::size_t i = 0; i < times->size() % Index(stages); ++i) ++even[i];
  return SplitSearch(plan, fits).Take(std::move(even), *times);
}

}  // namespace penstock
