// permutation, blend, token_set and token_samples.
#include "train/data/token_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/index.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "tokens/files/token_writer.h"
#include "train/data/permutation.h"

namespace penstock {
namespace {

TEST(PermutedIndexTest, VisitsEveryIndexOnceInAnotherOrderPerSeed) {
  for (const std::uint64_t size : {1, 2, 3, 17, 64, 1000}) {
    std::set<std::uint64_t> seen;
    int equal = 0;
    for (std::uint64_t i = 0; i < size; ++i) {
      seen.insert(PermutedIndex(i, size, 1));
      equal += PermutedIndex(i, size, 1) == PermutedIndex(i, size, 2) ? 1 : 0;
    }
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
    if (size >= 64) {
      EXPECT_LT(equal, static_cast<int>(size / 4));
    }
  }
}

TEST(BlendTest, EveryBlockHasTheWeightsAndEveryIndexOnce) {
  const DatasetBlend blend({0.7, 0.299, 1e-9}, 3);
  std::map<std::size_t, std::uint64_t> next;  // index, by dataset
  for (std::uint64_t sample = 0; sample < 3 * 4096; ++sample) {
    const DatasetBlend::Choice choice = blend.Of(sample);
    EXPECT_EQ(choice.index, next[choice.dataset]++);
  }
  EXPECT_EQ(std::accumulate(blend.counts().begin(), blend.counts().end(), 0U), 4096U);
  EXPECT_NEAR(static_cast<double>(blend.counts()[0]), 0.7 / 0.999 * 4096, 1.5);
  EXPECT_EQ(blend.counts()[2], 1U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(next[i], 3 * blend.counts()[i]);
  }
}

TEST(BlendTest, ParsesWeightsAndPaths) {
  const auto parts = ParseBlend("0.7 web data, 3 code").value();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].path, "web data");
  EXPECT_EQ(parts[1].weight, 3);
  for (const char* const text : {"web", "0 web", "-1 web", "nan web", "1", "1 web,,2 code"}) {
    EXPECT_FALSE(ParseBlend(text)) << text;
  }
}

class TokenSetTest : public testing::Test {
 protected:
  // Document d consists of d % 13 + 1 tokens d % 256.
  void WriteDocuments(int count) {
    TokenWriter writer = TokenWriter::Create(path_, OpenTokenizer("bytes").value(), 100).value();
    for (int d = 0; d < count; ++d) {
      const std::vector<TokenId> document(static_cast<std::size_t>(d % 13 + 1),
                                          static_cast<TokenId>(d % 256));
      ASSERT_TRUE(writer.Add(document));
      total_ += document.size();
    }
    ASSERT_TRUE(writer.Finish());
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "tokens";
  std::size_t total_ = 0;
};

TEST_F(TokenSetTest, EachDocumentIsWhollyOnOneSide) {
  WriteDocuments(250);
  const TokenSet set = TokenSet::Open(path_, 0.2).value();
  EXPECT_EQ(set.size() + set.held_out().size(), total_);
  EXPECT_NEAR(static_cast<double>(set.held_out().size()) / static_cast<double>(total_), 0.2, 0.1);
  std::vector<std::int64_t> all(set.size());
  set.Read(0, all);
  std::set<std::int64_t> trained(all.begin(), all.end());
  for (const TokenId id : set.held_out()) EXPECT_FALSE(trained.contains(id));
  // Any part is the same as that part of the whole.
  for (std::uint64_t begin = 0; begin + 40 <= set.size(); begin += 7) {
    std::vector<std::int64_t> part(40);
    set.Read(begin, part);
    EXPECT_TRUE(
        std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
  }
}

TEST_F(TokenSetTest, TwoDocumentsAreOneOnEachSide) {
  WriteDocuments(2);
  const TokenSet set = TokenSet::Open(path_, 0.05).value();
  EXPECT_GT(set.size(), 0U);
  EXPECT_GT(set.held_out().size(), 0U);
}

TEST_F(TokenSetTest, DamagedFoldersAreRefused) {
  WriteDocuments(20);
  folder_.Write("tokens/tokens-0.bin", "short");
  EXPECT_TRUE(Refused(TokenSet::Open(path_, 0.05), "tokens-0.bin"));
}

TEST(TokenSamplesTest, EachEpochVisitsEveryWindowOnceWhateverTheBatch) {
  std::vector<TokenId> tokens(8 * 50 + 1);
  std::iota(tokens.begin(), tokens.end(), 0U);
  std::vector<TokenSet> sets;
  sets.emplace_back(tokens, std::vector<TokenId>());
  const TokenSamples four(sets, {1}, 8, 4, 1);
  const TokenSamples ten(sets, {1}, 8, 10, 1);
  std::vector<std::uint64_t> epochs[2];
  for (std::int64_t number = 0; number < 100; ++number) {
    const auto window = four.WindowOf(number / 4, number % 4);
    EXPECT_EQ(window.begin, ten.WindowOf(number / 10, number % 10).begin);
    EXPECT_EQ(window.begin % 8, 0U);
    epochs[number / 50].push_back(window.begin);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<std::uint64_t>(epoch.begin(), epoch.end()).size(), 50U);
  }
  std::vector<std::int64_t> sample(9);
  four.Copy(3, 2, 0, sample);
  EXPECT_EQ(static_cast<std::uint64_t>(sample.front()), four.WindowOf(3, 2).begin);
  EXPECT_EQ(sample.back(), sample.front() + 8);
}

// A run that is interrupted several times, each time with another batch size and another blend.
struct Phase {
  std::vector<int> sets;
  std::vector<double> weights;
  std::int64_t per_step, steps;
};

TokenSamples SamplesOf(const Phase& phase) {
  std::vector<TokenSet> sets;
  for (const int set : phase.sets) {
    std::vector<TokenId> tokens(8 * (30 + 10 * Index(set)) + 1, static_cast<TokenId>(set));
    sets.emplace_back(std::move(tokens), std::vector<TokenId>());
  }
  return {std::move(sets), phase.weights, 8, phase.per_step, 1};
}

TEST(TokenSamplesTest, ARunThatResumesContinuesWithTheNextWindowOfEachSet) {
  const std::vector<std::vector<Phase>> runs = {
      {{{0}, {1}, 8, 3}, {{0}, {1}, 4, 5}, {{0}, {1}, 6, 7}},
      {{{0, 1}, {3, 1}, 8, 3}, {{0, 1}, {1, 2}, 8, 5}, {{0, 1}, {3, 1}, 6, 9}},
      {{{0, 1}, {1, 1}, 8, 4}, {{1, 2}, {1, 1}, 5, 4}, {{2, 0, 1}, {1, 1, 1}, 7, 20}},
      {{{1, 0}, {1, 5}, 3, 9}, {{0}, {1}, 16, 2}, {{0, 1}, {1, 5}, 3, 40}}};
  for (const std::vector<Phase>& run : runs) {
    std::map<int, std::vector<std::uint64_t>> windows;  // by set, in the order of training
    std::vector<ConsumedData> consumed;
    std::int64_t step = 0;
    for (const Phase& phase : run) {
      TokenSamples samples = SamplesOf(phase);
      if (step > 0) samples.ContinueAfter(step, consumed);
      for (std::int64_t last = step + phase.steps; step < last; ++step) {
        for (std::int64_t sample = 0; sample < phase.per_step; ++sample) {
          const TokenSamples::Window window = samples.WindowOf(step, sample);
          windows[phase.sets[window.dataset]].push_back(window.begin);
        }
      }
      consumed = samples.ConsumedAfter(step);
    }
    for (const auto& [set, visited] : windows) {
      const std::size_t epoch = 30 + 10 * Index(set);
      for (std::size_t begin = 0; begin < visited.size(); begin += epoch) {
        const std::size_t end = std::min(begin + epoch, visited.size());
        const auto first = visited.begin();
        EXPECT_EQ(std::set<std::uint64_t>(first + static_cast<std::ptrdiff_t>(begin),
                                          first + static_cast<std::ptrdiff_t>(end))
                      .size(),
                  end - begin)
            << "set " << set << ": a window is trained on twice in an epoch";
      }
    }
  }
}

TEST(TokenSamplesTest, ARunWithoutChangesContinuesAsIfItHadNotStopped) {
  const Phase phase = {{0, 1}, {2, 1}, 6, 1};
  const TokenSamples whole = SamplesOf(phase);
  TokenSamples resumed = SamplesOf(phase);
  resumed.ContinueAfter(11, whole.ConsumedAfter(11));
  EXPECT_EQ(resumed.ConsumedAfter(20), whole.ConsumedAfter(20));
  for (std::int64_t step = 11; step < 40; ++step) {
    for (std::int64_t sample = 0; sample < 6; ++sample) {
      EXPECT_EQ(resumed.WindowOf(step, sample).begin, whole.WindowOf(step, sample).begin);
      EXPECT_EQ(resumed.WindowOf(step, sample).dataset, whole.WindowOf(step, sample).dataset);
    }
  }
}

}  // namespace
}  // namespace penstock
