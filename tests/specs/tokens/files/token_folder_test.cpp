// token_folder and token_writer.
#include "tokens/files/token_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "tokens/files/token_writer.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kLetters =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";

class TokenFolderTest : public testing::Test {
 protected:
  void SetUp() override { Write(OpenTokenizer("bytes").value()); }

  void Write(const OpenedTokenizer& tokenizer) {
    std::filesystem::remove_all(path_);
    TokenWriter writer = TokenWriter::Create(path_, tokenizer, 5).value();
    for (const std::vector<TokenId>& document :
         {std::vector<TokenId>{1, 0, 1}, {1, 1, 0}, {0, 1}}) {
      ASSERT_TRUE(writer.Add(document));
    }
    ASSERT_TRUE(writer.Finish());
  }

  // Makes the folder one of an earlier version.
  void RemoveDigests() {
    json index = json::parse(ReadFile(path_ + "/index.json").value());
    index.erase("documents_digest");
    for (json& shard : index["shards"]) shard.erase("digest");
    folder_.Write("tokens/index.json", index.dump());
  }

  std::string Refusal() const { return LineOf(TokenFolder::Open(path_)); }

  TempFolder folder_;
  const std::string path_ = folder_ / "tokens";
};

TEST_F(TokenFolderTest, EveryFlippedBitIsNoticed) {
  ASSERT_EQ(Refusal(), "");
  for (const char* const name : {"tokens-0.bin", "tokens-1.bin", "documents.bin"}) {
    const std::string whole = ReadFile(path_ + "/" + name).value();
    ASSERT_FALSE(whole.empty());
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1U << (bit % 8)));
      folder_.Write(std::string("tokens/") + name, damaged);
      EXPECT_NE(Refusal().find(name), std::string::npos) << name << " bit " << bit;
    }
    folder_.Write(std::string("tokens/") + name, whole);
  }
  EXPECT_EQ(TokenFolder::Open(path_)->note(), "");
}

TEST_F(TokenFolderTest, FoldersWithoutDigestsAreReadWithANote) {
  RemoveDigests();
  const TokenFolder folder = TokenFolder::Open(path_).value();
  EXPECT_NE(folder.note().find(path_), std::string::npos);
  std::vector<std::int64_t> tokens(folder.size());
  folder.Read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{1, 0, 1, 1, 1, 0, 0, 1}));
}

TEST_F(TokenFolderTest, IdsOutsideOfTheVocabularyAreRefusedWithFileAndPosition) {
  folder_.Write("tokenizer.json", kLetters);
  Write(OpenTokenizer(folder_ / "tokenizer.json").value());
  RemoveDigests();
  const std::string whole = ReadFile(path_ + "/tokens-1.bin").value();
  for (std::size_t position = 0; position < whole.size() / 2; ++position) {
    std::string damaged = whole;
    damaged[2 * position] = 2;
    folder_.Write("tokens/tokens-1.bin", damaged);
    EXPECT_NE(Refusal().find(fmt::format("tokens-1.bin is damaged: token {} has the id 2, but "
                                         "the tokenizer has only 2 tokens",
                                         position)),
              std::string::npos)
        << Refusal();
  }
  folder_.Write("tokens/tokens-1.bin", whole);
  // Files that are overwritten while they are mapped.
  const TokenFolder folder = TokenFolder::Open(path_).value();
  std::FILE* const file = std::fopen((path_ + "/tokens-0.bin").c_str(), "r+b");
  std::fputc(9, file);
  std::fclose(file);
  std::vector<std::int64_t> tokens(folder.size());
  EXPECT_THROW(folder.Read(0, tokens), std::runtime_error);
}

}  // namespace
}  // namespace penstock
