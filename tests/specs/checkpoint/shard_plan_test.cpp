#include "checkpoint/shard_plan.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// "process:begin-end" of each piece of the tensor "a" with 10 elements.
std::string PlanOf(
    const std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>>& processes) {
  std::vector<std::vector<OfferedPiece>> offers;
  for (const auto& ranges : processes) {
    auto& own = offers.emplace_back();
    for (const auto& [begin, end] : ranges) own.push_back({"a", "F32", {2, 5}, begin, end});
  }
  const auto plan = PlanShards(offers);
  if (!plan) return plan.error().line();
  std::string text;
  for (const ChosenPiece& piece : plan->at("a").pieces) {
    text += fmt::format("{}:{}-{} ", piece.process, piece.begin, piece.end);
  }
  return text;
}

TEST(ShardPlan, ChoosesEveryElementOnce) {
  EXPECT_EQ(PlanOf({{{0, 10}}}), "0:0-10 ");
  EXPECT_EQ(PlanOf({{}, {{0, 10}}, {{0, 10}}}), "1:0-10 ");
  EXPECT_EQ(PlanOf({{{5, 10}}, {{0, 5}}}), "1:0-5 0:5-10 ");
  EXPECT_EQ(PlanOf({{{0, 6}}, {{4, 10}}}), "0:0-6 1:6-10 ");
  EXPECT_EQ(PlanOf({{{0, 2}, {4, 6}}, {{2, 4}, {6, 10}}}), "0:0-2 1:2-4 0:4-6 1:6-10 ");
  EXPECT_EQ(PlanOf({{{3, 5}}, {{0, 10}}}), "1:0-10 ");
}

TEST(ShardPlan, RefusesElementsThatNobodySaves) {
  EXPECT_EQ(PlanOf({{{0, 4}}, {{5, 10}}}),
            "no rank saves the elements of 'a' from 4 on; it has 10");
  EXPECT_EQ(PlanOf({{{0, 9}}}), "no rank saves the elements of 'a' from 9 on; it has 10");
}

TEST(ShardPlan, RefusesDifferentShapes) {
  EXPECT_FALSE(PlanShards({{{"a", "F32", {4}, 0, 4}}, {{"a", "F32", {2, 2}, 0, 4}}}));
  EXPECT_FALSE(PlanShards({{{"a", "F32", {4}, 0, 4}}, {{"a", "F64", {4}, 0, 4}}}));
}

}  // namespace
}  // namespace penstock
