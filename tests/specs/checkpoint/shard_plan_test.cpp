#include "checkpoint/shard_plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/index.h"

namespace penstock {
namespace {

// "process:begin-end" of each piece of the tensor "a" with 10 elements.
std::string PlanOf(
    const std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>>& processes) {
  std::vector<std::vector<OfferedPiece>> offers;
  for (const auto& ranges : processes) {
    auto& own = offers.emplace_back();
    for (const auto& [begin, end] : ranges) {
      own.push_back(
          {"a", "F32", Layout({2, 5}).From(static_cast<std::int64_t>(begin)), end - begin});
    }
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
  const auto offer = [](const char* dtype, std::vector<std::int64_t> shape) {
    return std::vector{OfferedPiece{"a", dtype, Layout(std::move(shape)), 4}};
  };
  EXPECT_FALSE(PlanShards({offer("F32", {4}), offer("F32", {2, 2})}));
  EXPECT_FALSE(PlanShards({offer("F32", {4}), offer("F64", {4})}));
}

// Offers columns of a matrix of 2 rows and 6 columns, each process's [first, first + count).
std::string PlanOfColumns(const std::vector<std::pair<std::int64_t, std::int64_t>>& columns) {
  std::vector<std::vector<OfferedPiece>> offers;
  for (const auto& [first, count] : columns) {
    const Layout layout({2, 6}, {1, first, count});
    offers.push_back({{"a", "F32", layout, Index(layout.elements())}});
  }
  const auto plan = PlanShards(offers);
  if (!plan) return plan.error().line();
  std::string text;
  for (const ChosenPiece& piece : plan->at("a").pieces) {
    text += fmt::format("{}:{}-{} ", piece.process, piece.begin, piece.end);
    if (piece.box) text += fmt::format("of {}+{} ", piece.box->first, piece.box->count);
  }
  return text;
}

TEST(ShardPlan, ChoosesEachBoxOnce) {
  EXPECT_EQ(PlanOfColumns({{2, 4}, {0, 2}}), "1:0-4 of 0+2 0:0-8 of 2+4 ");
  EXPECT_EQ(PlanOfColumns({{0, 3}, {3, 3}, {0, 3}, {3, 3}}), "0:0-6 of 0+3 1:0-6 of 3+3 ");
  EXPECT_EQ(PlanOfColumns({{0, 3}, {0, 6}}), "1:0-12 ") << "whole tensors are preferred";
}

TEST(ShardPlan, RefusesBoxesThatOverlapOrLeaveAGap) {
  EXPECT_EQ(
      PlanOfColumns({{0, 3}, {2, 4}}),
      "ranks save 'a' in boxes that do not divide it: indices 2 of dimension 1 come after 3 of "
      "dimension 1");
  EXPECT_EQ(PlanOfColumns({{0, 3}}), "no rank saves 'a' from index 3 of dimension 1 on; it has 6");
}

}  // namespace
}  // namespace penstock
