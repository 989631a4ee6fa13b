#include "train/data/data.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/index.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

std::string Words(std::mt19937& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("w{} ", random() % 1000);
  return text;
}

std::vector<std::string> Parts(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::string> parts;
  std::string part;
  for (const std::uint8_t byte : bytes) {
    if (byte != kEndOfDocument) {
      part += static_cast<char>(byte);
      continue;
    }
    parts.push_back(std::move(part));
    part.clear();
  }
  EXPECT_TRUE(part.empty());
  return parts;
}

// Forty fortunes in two files. Some are in both, with different spaces and case.
class Fortunes : public testing::Test {
 protected:
  Fortunes() {
    std::mt19937 random(5);
    std::string first, second;
    for (int i = 0; i < 40; ++i) {
      texts_.push_back(Words(random, 8));
      first += texts_.back() + "\n%\n";
      std::string shouted = texts_.back();
      for (char& c : shouted) c = static_cast<char>(std::toupper(c));
      if (i % 2 == 0) second += "  " + shouted + "!\n\n%\n";
    }
    folder_.Write("a", first);
    folder_.Write("b/c", second);
  }

  TempFolder folder_;
  std::vector<std::string> texts_;
};

TEST_F(Fortunes, AreSplitIntoWholeAndUniqueDocuments) {
  const auto corpus = ValueOf(LoadCorpus(folder_.path(), 0.25));
  EXPECT_EQ(corpus.documents, 40);
  std::set<std::string> all;
  for (const auto* part : {&corpus.train, &corpus.held_out}) {
    for (const std::string& text : Parts(*part)) {
      EXPECT_TRUE(all.insert(text).second) << "twice: " << text;
    }
  }
  EXPECT_EQ(all.size(), texts_.size());
  const double held = static_cast<double>(corpus.held_out.size());
  const double total = held + static_cast<double>(corpus.train.size());
  EXPECT_NEAR(held / total, 0.25, 0.05);
}

TEST_F(Fortunes, SkipsLinksAndBinaryFiles) {
  folder_.Write("a.dat", std::string_view("\0\0\1not text", 11));
  std::filesystem::create_symlink(folder_ / "a", folder_ / "a.u8");
  const auto corpus = ValueOf(LoadCorpus(folder_.path(), 0.25));
  EXPECT_EQ(corpus.documents, 40);
  EXPECT_EQ(corpus.files, 1);  // the second has only duplicates
}

TEST_F(Fortunes, AreSplitTheSameWayEveryTime) {
  const auto one = LoadCorpus(folder_.path(), 0.25), two = LoadCorpus(folder_.path(), 0.25);
  EXPECT_EQ(one->train, two->train);
  EXPECT_EQ(one->held_out, two->held_out);
}

TEST(Data, SplitsAnyTextIntoSectionsWithoutLoss) {
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    std::string text;
    while (text.size() < 100 * Index(i)) {
      text += Words(random, static_cast<int>(random() % 20));
      text += std::array{"\n\n", "\n", "", "xx"}[random() % 4];
    }
    std::string kept, expected;
    for (const std::string_view document : SplitDocuments(text)) kept += document;
    const auto visible = [](const std::string& from) {
      std::string to;
      for (const char c : from) {
        if (std::isspace(static_cast<unsigned char>(c)) == 0) to += c;
      }
      return to;
    };
    EXPECT_EQ(visible(kept), visible(text));
  }
}

TEST(Data, RefusesMissingEmptyAndShortText) {
  const TempFolder folder;
  const auto code = [](const std::string& path) {
    const auto corpus = LoadCorpus(path, 0.05);
    return corpus ? ErrorCode::kInternal : corpus.error().code;
  };
  EXPECT_EQ(code(folder / "missing"), ErrorCode::kNotFound);
  EXPECT_EQ(code(folder.path()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(folder.Write("empty", "")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(folder.Write("blank", " \n\n \n")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(folder.Write("binary", std::string_view("a\0b", 3))), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(folder.Write("tiny", "a word")), ErrorCode::kInvalidArgument);

  std::mt19937 random(3);
  const auto corpus = ValueOf(LoadCorpus(folder.Write("text", Words(random, 300)), 0.05));
  const auto held = static_cast<std::int64_t>(corpus.held_out.size());
  EXPECT_TRUE(CheckLength(corpus, held - 1));
  EXPECT_FALSE(CheckLength(corpus, held));
}

TEST(Sampler, DependsOnSeedStepAndSampleAndReachesAll) {
  std::vector<std::uint8_t> text(50);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i);
  const Sampler sampler(text, 40, 1), same(text, 40, 1), other(text, 40, 2);
  std::set<int> begins;
  int equal = 0;
  for (int step = 0; step < 20; ++step) {
    for (int sample = 0; sample < 10; ++sample) {
      const auto bytes = sampler.Sample(step, sample);
      ASSERT_EQ(bytes.size(), 41U);
      begins.insert(bytes[0]);
      EXPECT_EQ(bytes.data(), same.Sample(step, sample).data());
      equal += bytes.data() == other.Sample(step, sample).data() ? 1 : 0;
    }
  }
  EXPECT_EQ(begins.size(), 10U);  // every start of 41 bytes
  EXPECT_LT(equal, 60);           // 20 expected by chance
}

}  // namespace
}  // namespace penstock
