// Costs of actions that passes add: what a file or --price says, and the defaults.
#include "schedule/pricing/action_prices.h"

#include <gtest/gtest.h>

#include "base/text/yaml_map.h"
#include "schedule/cost_files/cost_list.h"
#include "schedule/cost_files/layer_costs.h"
#include "schedule/pricing/rank_speed.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock {
namespace {

CostList ReadList(const char* yaml, bool of_layers) {
  const YAML::Node node = YAML::Load(yaml);
  const YamlMap map = YamlMap::Of(node, "the file").value();
  return (of_layers ? ReadLayerCosts(map) : ReadStageCosts(map)).value();
}

// The time of RECOMPUTE that a file with these keys leads to.
double RecomputeOf(const char* keys, const std::vector<std::string>& prices = {}) {
  const std::string yaml = fmt::format("stage_costs: [{{{}}}]", keys);
  const Schedule schedule = testing::Make("1f1b", {1, 0, 2});
  Costs costs;
  costs.stages = {ReadList(yaml.c_str(), false).entries[0].costs};
  EXPECT_TRUE(SetActionPrices(prices, schedule, costs));
  return costs.stages[0].recompute;
}

TEST(ActionPrices, ZeroIsAPriceAndNotTheDefault) {
  EXPECT_EQ(RecomputeOf("forward: 3"), 3);
  EXPECT_EQ(RecomputeOf("forward: 3, recompute: 0"), 0);
  EXPECT_EQ(RecomputeOf("forward: 3, recompute: 2"), 2);
  EXPECT_EQ(RecomputeOf("forward: 0, recompute: 2"), 2);
  EXPECT_EQ(RecomputeOf("forward: 3", {"recompute=0"}), 0);
  EXPECT_EQ(RecomputeOf("forward: 3, recompute: 2", {"recompute=0"}), 0);
}

TEST(ActionPrices, EachLayerHasItsOwnDefault) {
  const CostList list = ReadList(
      "layer_costs: [{layers: 2, forward: 3}, {forward: 5, recompute: 0}, {recompute: 7}]", true);
  const auto stages = StagesOfLayers(list.entries, 1, 1, 1);
  ASSERT_TRUE(stages);
  EXPECT_EQ(stages->front().forward, 2 * 3 + 5 + 1);
  EXPECT_EQ(stages->front().recompute, 2 * 3 + 0 + 7);
}

TEST(ActionPrices, RecomputePaysALaunch) {
  Costs costs;
  costs.stages = {ReadList("stage_costs: [{forward: 3, recompute: 0}]", false).entries[0].costs};
  AddLaunches(costs, 0.5);
  EXPECT_EQ(costs.stages[0].forward, 3.5);
  EXPECT_EQ(costs.stages[0].recompute, 0.5);
}

}  // namespace
}  // namespace penstock
