#include "monitor/stragglers.h"

#include <gtest/gtest.h>

#include "tests/engine/monitor/make_metrics.h"

namespace penstock {
namespace {

constexpr RankWork kFirst{2, 1, 0}, kMiddle{2, 0, 0}, kLast{2, 0, 1};

TEST(Stragglers, ARankMuchSlowerThanItsPeersIsOne) {
  const std::vector<RankWork> work = {kFirst, kMiddle, kMiddle, kMiddle, kLast};
  // The first and the last rank have more to do, and no peers.
  const auto found = FindStragglers(MadeSteps(20, {0.2, 0.1, 0.13, 0.1, 0.3}), work);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_NEAR(found[0].factor, 1.3, 1e-9);
  EXPECT_TRUE(found[0].than_peers);
  EXPECT_TRUE(FindStragglers(MadeSteps(20, {0.2, 0.1, 0.12, 0.1, 0.3}), work).empty());
}

TEST(Stragglers, OfTwoPeersTheSlowerIsOne) {
  const auto found =
      FindStragglers(MadeSteps(20, {0.2, 0.1, 0.2, 0.2}), {kFirst, kMiddle, kMiddle, kLast});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 2);
}

TEST(Stragglers, ARankThatHasBecomeSlowerIsOne) {
  std::vector<StepMetric> metrics = MadeSteps(50, {0.1, 0.2});
  const std::vector<RankWork> work = {kFirst, kLast};
  EXPECT_TRUE(FindStragglers(metrics, work).empty());
  for (int step = 50; step < 70; ++step) metrics.push_back(MadeStep(step, {0.15, 0.2}));
  const auto found = FindStragglers(metrics, work);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_NEAR(found[0].factor, 1.5, 1e-9);
  EXPECT_FALSE(found[0].than_peers);
}

TEST(Stragglers, ASlowerMachineSlowsAllRanksAndHasNone) {
  std::vector<StepMetric> metrics = MadeSteps(50, {0.1, 0.2});
  for (int step = 50; step < 70; ++step) metrics.push_back(MadeStep(step, {0.2, 0.4}));
  EXPECT_TRUE(FindStragglers(metrics, {}).empty());
}

TEST(Stragglers, ASingleSlowStepIsNone) {
  std::vector<StepMetric> metrics = MadeSteps(50, {0.1, 0.1});
  metrics.push_back(MadeStep(50, {0.1, 3}));
  EXPECT_TRUE(FindStragglers(metrics, {kMiddle, kMiddle}).empty());
  EXPECT_TRUE(FindStragglers(MadeSteps(19, {0.1, 3}), {kMiddle, kMiddle}).empty());  // too few
}

TEST(Stragglers, RunsWithoutFiguresOfRanksHaveNone) {
  EXPECT_TRUE(FindStragglers(MadeSteps(50, {}), {}).empty());
}

}  // namespace
}  // namespace penstock
