#include "train/shards/shards.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock {
namespace {

TEST(Shards, EveryElementIsInExactlyOnePlace) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::int64_t> elements;
    std::vector<Division> divisions;
    for (unsigned count = 1 + random() % 6; count > 0; --count) {
      elements.push_back(1 + random() % 300);
      constexpr Division kKinds[] = {Division::kShards, Division::kShards, Division::kWhole,
                                     Division::kExperts};
      divisions.push_back(kKinds[random() % 4]);
    }
    const int replicas = 1 + static_cast<int>(random() % 5);
    const Shards shards(elements, divisions, replicas);
    std::vector<std::int64_t> covered(elements.size());
    for (int replica = 0; replica < replicas; ++replica) {
      std::int64_t size = 0;
      for (const Shards::ParameterPiece& piece : shards.pieces(replica)) {
        EXPECT_EQ(piece.begin, covered[piece.parameter]);
        EXPECT_EQ(divisions[piece.parameter], Division::kShards);
        covered[piece.parameter] = piece.end;
        size += piece.size();
        const std::int64_t first = shards.start(piece.parameter) + piece.begin;
        EXPECT_EQ(first / shards.shard_elements(), replica);
        EXPECT_EQ(first % Shards::kAlign, 0);
      }
      EXPECT_LE(size, shards.shard_elements());
    }
    for (const Shards::ParameterPiece& piece : shards.unsharded()) {
      const bool is_of_experts = divisions[piece.parameter] == Division::kExperts;
      EXPECT_NE(divisions[piece.parameter], Division::kShards);
      EXPECT_EQ(shards.is_of_experts(piece.parameter), is_of_experts);
      EXPECT_GE(shards.start(piece.parameter),
                is_of_experts ? shards.experts_begin() : shards.rest());
      covered[piece.parameter] = piece.end;
    }
    EXPECT_EQ(covered, elements);
    EXPECT_EQ(shards.shard_elements() % Shards::kAlign, 0);
    EXPECT_GE(shards.end(), shards.rest());
  }
}

}  // namespace
}  // namespace penstock
