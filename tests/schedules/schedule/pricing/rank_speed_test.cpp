#include "schedule/pricing/rank_speed.h"

#include <gtest/gtest.h>

#include "schedule/catalog.h"

namespace penstock {
namespace {

TEST(RankSpeed, ALaunchIsPaidOncePerAction) {
  const Placement placement = Generate("1f1b", {})->placement;
  Costs costs = Costs::Uniform(placement, 1, 1, 2, 3);
  AddLaunches(costs, 0.5);
  const StageCosts& stage = costs.stages.front();
  EXPECT_EQ(stage.forward, 1.5);
  EXPECT_EQ(stage.backward_input + stage.backward_weight, 6);
  EXPECT_EQ(stage.Backward(), 5.5);
}

TEST(RankSpeed, SlowsDownAllStagesOfARankAndNoOthers) {
  for (const Algorithm& algorithm : Catalog()) {
    const auto schedule = Generate(algorithm.name, {});
    ASSERT_TRUE(schedule) << algorithm.name;
    const Placement& placement = schedule->placement;
    Costs costs = Costs::Uniform(placement, 1, 1, 2, 3);
    const Costs before = costs;
    ASSERT_TRUE(SlowDown(costs, placement, {{1, 1.5}, {2, 0.5}}));
    for (int stage = 0; stage < placement.stages(); ++stage) {
      const int rank = placement.rank_of(stage);
      const double factor = rank == 1 ? 1.5 : rank == 2 ? 0.5 : 1;
      EXPECT_EQ(costs.stages[stage].Backward(), factor * before.stages[stage].Backward());
      EXPECT_EQ(costs.stages[stage].activation, before.stages[stage].activation);
    }
    EXPECT_FALSE(SlowDown(costs, placement, {{placement.ranks(), 2}}));
    EXPECT_FALSE(SlowDown(costs, placement, {{0, 0}}));
    EXPECT_FALSE(SlowDown(costs, placement, {{-1, 2}}));
    EXPECT_FALSE(SlowDown(costs, placement, {{0, 1e300}}));
  }
}

}  // namespace
}  // namespace penstock
