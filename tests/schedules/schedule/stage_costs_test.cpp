// Properties of every row of the table of stage costs: files, prices, units, layers and lengths.
#include "schedule/stage_costs.h"

#include <gtest/gtest.h>

#include "base/text/yaml_map.h"
#include "schedule/cost_files/cost_list.h"
#include "schedule/cost_files/layer_costs.h"
#include "schedule/pricing/action_prices.h"
#include "schedule/pricing/microbatch_lengths.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock {
namespace {

Result<CostList> ReadList(const std::string& yaml) {
  const YAML::Node node = YAML::Load(yaml);
  return ReadStageCosts(YamlMap::Of(node, "the file").value());
}

// A stage whose costs all differ, each within what another allows.
StageCosts AllDifferent() {
  StageCosts stage;
  double value = 64;
  for (const StageCost& cost : kStageCosts) stage.*cost.value = value -= 1;
  stage.length = 1;
  return stage;
}

TEST(StageCosts, AFileSetsEachCostAlsoToZero) {
  for (const StageCost& cost : kStageCosts) {
    for (const double value : {0.0, 0.5}) {
      const auto list = ReadList(fmt::format("stage_costs: [{{{}: {}}}]", cost.name, value));
      ASSERT_EQ(list.has_value(), cost.in_files) << cost.name;
      if (!list) continue;
      const StageCosts& stage = list->entries[0].costs;
      for (const StageCost& each : kStageCosts) {
        const double expected = each.name == cost.name ? value : each.Default(stage);
        EXPECT_EQ(stage.*each.value, expected) << each.name << " next to " << cost.name;
      }
    }
  }
}

TEST(StageCosts, AFileWithAWrongCostIsRefusedWithLineAndKey) {
  for (const StageCost& cost : kStageCosts) {
    if (!cost.in_files) continue;
    std::vector<std::string> wrong = {"-1", "x", "1e30", "[1]"};
    if (cost.at_most) wrong.emplace_back("2");
    if (!cost.is_memory()) wrong.emplace_back("1GiB");
    for (const std::string& value : wrong) {
      const auto list = ReadList(fmt::format("stage_costs:\n- {{{}: {}}}", cost.name, value));
      ASSERT_FALSE(list) << cost.name << ": " << value;
      EXPECT_EQ(list.error().line().find(fmt::format("line 2: {}", cost.name)), 0)
          << list.error().line();
    }
  }
}

TEST(StageCosts, APriceSetsItsCostAlsoToZero) {
  const Schedule schedule = testing::Make("1f1b", {1, 0, 2});
  for (const StageCost& cost : kStageCosts) {
    if (cost.price.key.empty()) continue;
    for (const double price : {0.0, 5.0}) {
      Costs costs;
      costs.stages = {AllDifferent()};
      ASSERT_TRUE(SetActionPrices(std::vector{fmt::format("{}={}", cost.price.key, price)},
                                  schedule, costs));
      for (const StageCost& each : kStageCosts) {
        const bool follows = !each.price.key.empty() && each.otherwise == cost.value;
        const bool is_set = each.name == cost.name || follows;
        EXPECT_EQ(costs.stages[0].*each.value, is_set ? price : AllDifferent().*each.value)
            << each.name << " at " << cost.price.key << "=" << price;
      }
    }
  }
}

TEST(StageCosts, AUnitScalesItsKindOnly) {
  Costs times, memory;
  times.stages = memory.stages = times.by_slice = memory.by_slice = {AllDifferent()};
  times.ScaleTimes(2);
  memory.ScaleMemory(2);
  for (const StageCost& cost : kStageCosts) {
    const double before = AllDifferent().*cost.value;
    const double time = cost.kind == CostKind::kTime ? 2 * before : before;
    const double amount = cost.is_memory() ? 2 * before : before;
    for (const auto& list : {times.stages, times.by_slice}) EXPECT_EQ(list[0].*cost.value, time);
    for (const auto& list : {memory.stages, memory.by_slice}) {
      EXPECT_EQ(list[0].*cost.value, amount);
    }
  }
}

TEST(StageCosts, LayersAndSlicesMakeAStage) {
  const StageCosts first = AllDifferent();
  StageCosts last;
  for (const StageCost& cost : kStageCosts) last.*cost.value = 2 * first.*cost.value;
  const auto stages = StagesOfLayers({{3, first}, {1, last}}, 1, 2, 2);
  ASSERT_TRUE(stages);
  ASSERT_EQ(stages->size(), 2U);
  for (const StageCost& cost : kStageCosts) {
    const double layers = cost.layers == OverLayers::kSum     ? 5
                          : cost.layers == OverLayers::kFirst ? 1
                                                              : 2;
    const bool divided = cost.of == CostOf::kMicrobatch && cost.kind != CostKind::kFactor;
    EXPECT_EQ(stages->back().*cost.value, layers * first.*cost.value / (divided ? 2 : 1))
        << cost.name;
  }
}

TEST(StageCosts, CostsOfAMicrobatchGrowWithItsLength) {
  const Placement placement = Placement::Linear(1);
  Costs costs;
  costs.stages = {AllDifferent()};
  ASSERT_TRUE(ScaleByLength(costs, {1, 3}, {placement, 2, 1}));
  ASSERT_EQ(costs.by_slice.size(), 2U);
  for (const StageCost& cost : kStageCosts) {
    const double before = AllDifferent().*cost.value;
    const bool grows = cost.of == CostOf::kMicrobatch;
    EXPECT_EQ(costs.by_slice[1].*cost.value, grows ? 3 * before : before) << cost.name;
    // Searches plan with mean times and the largest memory.
    if (cost.kind == CostKind::kMemoryChange) continue;
    const double planned = !grows ? 1 : cost.kind == CostKind::kMemory ? 3 : 2;
    EXPECT_EQ(costs.stages[0].*cost.value, planned * before) << cost.name;
  }
}

TEST(StageCosts, CheckStageNamesTheCost) {
  for (const StageCost& cost : kStageCosts) {
    for (const double wrong : {-1e30, 1e30}) {
      StageCosts stage;
      stage.*cost.value = wrong;
      const Status status = CheckStage(stage);
      ASSERT_FALSE(status) << cost.name;
      EXPECT_EQ(status.error().parameter, cost.name);
    }
  }
  EXPECT_TRUE(CheckStage(AllDifferent()));
}

}  // namespace
}  // namespace penstock
