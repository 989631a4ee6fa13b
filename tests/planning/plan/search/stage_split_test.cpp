#include "plan/search/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "base/index.h"
#include "schedule/placement.h"

namespace penstock {
namespace {

double LongestOf(const std::vector<double>& times, const std::vector<double>& factors,
                 const std::vector<int>& counts) {
  double longest = 0;
  auto layer = times.begin();
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const int count = counts[stage];
    longest = std::max(longest, factors[stage] * std::accumulate(layer, layer + count, 0.0));
    layer += count;
  }
  return longest;
}

// Tries all divisions of the layers from `first` on among the stages from counts.size() on.
double ShortestByTrying(const std::vector<double>& times, const std::vector<double>& factors,
                        std::vector<int> counts = {}) {
  const int used = std::accumulate(counts.begin(), counts.end(), 0);
  const int left = static_cast<int>(times.size()) - used;
  const int stages_left = static_cast<int>(factors.size() - counts.size());
  if (stages_left == 1) {
    counts.push_back(left);
    return LongestOf(times, factors, counts);
  }
  double shortest = std::numeric_limits<double>::infinity();
  for (int count = 1; count <= left - stages_left + 1; ++count) {
    counts.push_back(count);
    shortest = std::min(shortest, ShortestByTrying(times, factors, counts));
    counts.pop_back();
  }
  return shortest;
}

TEST(ShortestBottleneck, IsThatOfAllDivisions) {
  std::mt19937 random(7);
  for (int run = 0; run < 200; ++run) {
    const auto layers = static_cast<std::size_t>(1 + random() % 9);
    const int stages = 1 + static_cast<int>(random() % layers);
    std::vector<double> times(layers);
    for (double& time : times) time = static_cast<double>(1 + random() % 20);
    std::vector<double> factors(Index(stages), 1);
    if (run % 2 == 1) {
      for (double& factor : factors) factor = static_cast<double>(1 + random() % 4);
    }
    const std::vector<int> counts = ShortestBottleneck(times, factors);
    ASSERT_EQ(counts.size(), Index(stages));
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), static_cast<int>(layers));
    EXPECT_GE(std::ranges::min(counts), 1);
    EXPECT_DOUBLE_EQ(LongestOf(times, factors, counts), ShortestByTrying(times, factors));
  }
}

TEST(BalancedLayers, GiveSlowerRanksLessWork) {
  std::mt19937 random(11);
  for (int run = 0; run < 100; ++run) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<double> times(Index(ranks) + random() % 5);
    for (double& time : times) time = static_cast<double>(1 + random() % 9);
    std::vector<double> rank_times(Index(ranks));
    for (double& time : rank_times) time = static_cast<double>(1 + random() % 4);
    const std::vector<int> counts = BalancedLayers(times, Placement::Looped(ranks, 1), rank_times);
    EXPECT_NEAR(LongestOf(times, rank_times, counts), ShortestByTrying(times, rank_times), 1e-9);
  }
}

}  // namespace
}  // namespace penstock
