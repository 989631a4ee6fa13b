#include "train/data/document_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/index.h"

namespace penstock {
namespace {

constexpr TokenId kEnd = 0;

// Documents of these lengths, with their ends. The tokens of the d-th are d + 1.
TokenSet SetOf(const std::vector<std::size_t>& lengths) {
  std::vector<TokenId> tokens;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    tokens.insert(tokens.end(), lengths[d] - 1, static_cast<TokenId>(d + 1));
    tokens.push_back(kEnd);
  }
  return {std::move(tokens), {}};
}

std::vector<std::int64_t> Copied(const DocumentSamples& samples, std::int64_t step,
                                 std::int64_t sample, std::size_t begin, std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  samples.Copy(step, sample, begin, tokens);
  return tokens;
}

TEST(DocumentSamplesTest, MicrobatchesHaveTheDocumentsThatFitTheirLength) {
  std::vector<std::size_t> lengths;
  for (std::size_t d = 0; d < 60; ++d) lengths.push_back(2 + d % 16);  // 2 to 17 tokens
  const std::vector<std::int64_t> of_microbatches = {16, 4, 8, 4};
  const DocumentSamples samples =
      DocumentSamples::Make(SetOf(lengths), kEnd, of_microbatches, 2, 1).value();
  std::map<std::int64_t, std::multiset<std::int64_t>> seen;  // documents by length
  for (std::int64_t step = 0; step < 12; ++step) {
    for (std::int64_t sample = 0; sample < 8; ++sample) {
      const std::int64_t length = of_microbatches[Index(sample / 2)];
      const auto tokens = Copied(samples, step, sample, 0, Index(length) + 1);
      const auto end = std::ranges::find(tokens, kEnd);
      ASSERT_NE(end, tokens.end());
      const std::int64_t inputs = end - tokens.begin();
      EXPECT_LE(inputs, length);
      EXPECT_GT(inputs, length == 4 ? 0 : length / 2);
      EXPECT_TRUE(std::all_of(end + 1, tokens.end(), [](auto id) { return id == kNoToken; }));
      EXPECT_TRUE(std::all_of(tokens.begin(), end, [&](auto id) { return id == tokens[0]; }));
      EXPECT_EQ(std::ssize(tokens) - (tokens.end() - end) + 1,
                static_cast<std::int64_t>(lengths[Index(tokens[0] - 1)]));
      seen[length].insert(tokens[0]);
      // Targets are read from the second token on.
      const auto targets = Copied(samples, step, sample, 1, Index(length));
      EXPECT_TRUE(std::equal(targets.begin(), targets.end(), tokens.begin() + 1));
    }
  }
  // 16 documents have 2 to 5 tokens, 16 have 6 to 9 and the rest up to 17: epochs visit all.
  EXPECT_EQ(seen[4].size(), 48U);
  for (const std::int64_t document : seen[4]) EXPECT_EQ(seen[4].count(document), 3U);
}

// Each length continues with its next document, whatever the microbatches of the next run are.
TEST(DocumentSamplesTest, ARunThatResumesContinuesWithTheNextDocuments) {
  std::vector<std::size_t> lengths;
  for (std::size_t d = 0; d < 60; ++d) lengths.push_back(2 + d % 16);
  const auto make = [&](const std::vector<std::int64_t>& of_microbatches, int batch) {
    return DocumentSamples::Make(SetOf(lengths), kEnd, of_microbatches, batch, 1).value();
  };
  std::map<std::int64_t, std::vector<std::int64_t>> seen;  // documents by length
  std::vector<ConsumedData> consumed;
  std::int64_t step = 0;
  const std::pair<std::vector<std::int64_t>, int> phases[] = {
      {{16, 4, 8, 4}, 2}, {{4, 8, 16}, 3}, {{8, 16, 16, 4}, 1}};
  for (const auto& [of_microbatches, batch] : phases) {
    DocumentSamples samples = make(of_microbatches, batch);
    if (step > 0) samples.ContinueAfter(step, consumed);
    for (const std::int64_t last = step + 2; step < last; ++step) {
      for (std::size_t m = 0; m < of_microbatches.size(); ++m) {
        for (int i = 0; i < batch; ++i) {
          const auto sample = static_cast<std::int64_t>(m) * batch + i;
          seen[of_microbatches[m]].push_back(Copied(samples, step, sample, 0, 1).front());
        }
      }
    }
    consumed = samples.ConsumedAfter(step);
  }
  for (const auto& [length, documents] : seen) {
    EXPECT_LE(documents.size(), 16U);  // an epoch
    EXPECT_EQ(std::set<std::int64_t>(documents.begin(), documents.end()).size(), documents.size())
        << length;
  }
}

TEST(DocumentSamplesTest, LongDocumentsAreDivided) {
  // 11 tokens: 10 inputs in pieces of 4, 4 and 2.
  std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0};
  const DocumentSamples samples =
      DocumentSamples::Make({std::move(tokens), {}}, kEnd, {4, 2}, 2, 1).value();
  std::set<std::vector<std::int64_t>> pieces = {Copied(samples, 0, 0, 0, 5),
                                                Copied(samples, 0, 1, 0, 5)};
  EXPECT_EQ(pieces, (std::set<std::vector<std::int64_t>>{{1, 2, 3, 4, 5}, {5, 6, 7, 8, 9}}));
  EXPECT_EQ(Copied(samples, 0, 2, 0, 3), (std::vector<std::int64_t>{9, 10, 0}));
  EXPECT_EQ(samples.padding(), 0);
}

TEST(DocumentSamplesTest, LengthsWithoutDocumentsAreRefused) {
  const auto samples = DocumentSamples::Make(SetOf({3, 3, 9}), kEnd, {2, 4, 8}, 1, 1);
  ASSERT_FALSE(samples);
  EXPECT_EQ(
      samples.error().line(),
      "data.lengths: no document has 4 to 5 tokens, which are samples of length 4; remove it");
}

}  // namespace
}  // namespace penstock
