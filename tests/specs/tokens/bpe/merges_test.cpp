#include "tokens/bpe/merges.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock {
namespace {

// The definition: merges the leftmost of the pairs with the lowest rank, until none is left.
std::vector<TokenId> MergedSlowly(const Merges& merges, std::vector<TokenId> ids) {
  while (true) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge* const merge = merges.Find(ids[i], ids[i + 1]);
      if (merge == nullptr || (best != nullptr && merge->rank >= best->rank)) continue;
      best = merge;
      at = i;
    }
    if (best == nullptr) return ids;
    ids[at] = best->token;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(MergesTest, EqualTheDefinitionForShortAndLongWords) {
  std::mt19937 random(1);
  const auto draw = [&](std::uint32_t count) {
    return static_cast<std::uint32_t>(random() % count);
  };
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t letters = 2 + draw(4);
    const std::uint32_t count = 1 + draw(40);
    Merges merges(count);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      merges.Set(draw(letters + rank), draw(letters + rank), {rank, letters + rank});
    }
    std::vector<TokenId> ids = {7, 7, 7};  // before `begin`
    for (std::uint32_t length = draw(120); length > 0; --length) ids.push_back(draw(letters));
    const std::vector<TokenId> word(ids.begin() + 3, ids.end());
    MergeScratch scratch;
    merges.MergeAll(ids, 3, scratch);
    EXPECT_EQ(std::vector<TokenId>(ids.begin() + 3, ids.end()), MergedSlowly(merges, word));
  }
}

}  // namespace
}  // namespace penstock
