#include "schedule/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace penstock {
namespace {

constexpr Axis kAll[] = {Axis::kData, Axis::kExpert, Axis::kPipeline, Axis::kContext,
                         Axis::kTensor};

// A mesh of any order.
Mesh Draw(std::mt19937& random) {
  const auto draw = [&] { return 1 + static_cast<int>(random() % 4); };
  const int expert = draw();
  AxisOrder order = kReplicasOutermost;
  std::ranges::shuffle(order, random);
  return Mesh::Make({.data = expert * draw(),
                     .expert = expert,
                     .pipeline = draw(),
                     .context = draw(),
                     .tensor = draw()},
                    order)
      .value();
}

TEST(Mesh, EveryRankHasItsOwnPlaces) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const Mesh mesh = Draw(random);
    std::set<std::vector<int>> places;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<int> of_rank;
      int again = 0;
      for (const Axis axis : kAll) {
        of_rank.push_back(mesh.PlaceOf(rank, axis));
        again += of_rank.back() * mesh.Stride(axis);
      }
      EXPECT_EQ(again, rank);
      places.insert(of_rank);
    }
    EXPECT_EQ(std::ssize(places), mesh.ranks());
  }
}

TEST(Mesh, GroupsDivideTheRanksAndDifferOnlyAlongTheirAxes) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 50; ++trial) {
    const Mesh mesh = Draw(random);
    const Axis first = kAll[random() % kAxes], second = kAll[random() % kAxes];
    if (first == second) continue;
    std::vector<int> seen(static_cast<std::size_t>(mesh.ranks()));
    for (const std::vector<int>& group : mesh.Groups({first, second})) {
      EXPECT_EQ(std::ssize(group), mesh.size(first) * mesh.size(second));
      EXPECT_TRUE(std::ranges::is_sorted(group));
      for (const int rank : group) {
        ++seen[static_cast<std::size_t>(rank)];
        EXPECT_EQ(mesh.GroupOf(rank, {second, first}), group);
        for (const Axis axis : kAll) {
          if (axis == first || axis == second) continue;
          EXPECT_EQ(mesh.PlaceOf(rank, axis), mesh.PlaceOf(group.front(), axis));
        }
      }
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int count) { return count == 1; }));
  }
}

// As Megatron-LM and torch number ranks within a node: tensor parallelism has the nearest ones.
TEST(Mesh, NeighborsAlongTheLastAxisHaveConsecutiveNumbers) {
  const Mesh mesh = Mesh::Make({.data = 4, .expert = 2, .pipeline = 3, .tensor = 2}).value();
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kTensor}), (std::vector{0, 1}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kPipeline}), (std::vector{0, 2, 4}));
  EXPECT_EQ(mesh.GroupOf(7, {Axis::kExpert}), (std::vector{1, 7}));
  EXPECT_EQ(mesh.GroupOf(7, {Axis::kData, Axis::kExpert}), (std::vector{1, 7, 13, 19}));
  EXPECT_EQ(mesh.ToString(), "4 data x 3 pipeline x 2 tensor");
  EXPECT_EQ(mesh.PlacesOf(21), "data 3, pipeline 1, tensor 1");
}

TEST(Mesh, MegatronHasTheRanksOfAStageNextToEachOther) {
  const Mesh mesh =
      Mesh::Make({.data = 2, .pipeline = 3, .context = 2, .tensor = 2}, kPipelineOutermost).value();
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kTensor}), (std::vector{0, 1}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kContext}), (std::vector{0, 2}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kData}), (std::vector{0, 4}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kPipeline}), (std::vector{0, 8, 16}));
  EXPECT_EQ(mesh.Span(Axis::kData), 8);
}

TEST(Mesh, RefusesImpossibleSizes) {
  EXPECT_EQ(Mesh::Make({.tensor = 0}).error().line(), "tensor: 0 parts; at least 1 is needed");
  EXPECT_EQ(Mesh::Make({.data = 3, .expert = 2}).error().line(),
            "expert: 2 does not divide the 3 replicas (data)");
  EXPECT_EQ(Mesh::Make({.data = 1 << 20, .pipeline = 1 << 20}).error().line(),
            "a mesh of 1099511627776 ranks and more is too large");
}

}  // namespace
}  // namespace penstock
