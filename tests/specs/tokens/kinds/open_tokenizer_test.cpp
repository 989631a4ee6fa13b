#include "tokens/kinds/open_tokenizer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string_view>

#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr const char* kTwoTokens =
    R"({"added_tokens": [{"id": 1, "content": "<end>", "special": true}],
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";

TEST(OpenTokenizerTest, BytesAreTheirOwnIds) {
  const OpenedTokenizer bytes = OpenTokenizer("bytes").value();
  std::vector<TokenId> ids;
  ASSERT_TRUE(bytes.tokenizer->MakeEncoder()->Encode("a\xFF", SpecialTokens::kAdd, ids));
  EXPECT_EQ(ids, (std::vector<TokenId>{'a', 0xFF}));
  EXPECT_EQ(bytes.tokenizer->Decode(ids), "a\xFF");
  EXPECT_EQ(bytes.tokenizer->end_of_text(), 0U);
}

TEST(OpenTokenizerTest, FoldersNameTheirEndOfText) {
  const TempFolder folder;
  folder.Write("tokenizer.json", kTwoTokens);
  EXPECT_FALSE(OpenTokenizer(folder.path())->tokenizer->end_of_text());
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "<end>"}})");
  const OpenedTokenizer opened = OpenTokenizer(folder.path()).value();
  EXPECT_EQ(opened.tokenizer->end_of_text(), 1U);
  EXPECT_EQ(opened.files.size(), 2U);
  EXPECT_TRUE(HasTokenizer(folder.path()));
}

TEST(OpenTokenizerTest, AModelsFolderHasNoneOneOrOneOfAnotherKind) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  EXPECT_EQ(TokenizerOfFolder(folder.path()).value(), "");
  for (const char* const name :
       {"vocab.txt", "tekken.json", "spm.model", "tokenizer_config.json"}) {
    folder.Write(name, "{}");
    EXPECT_TRUE(Refused(TokenizerOfFolder(folder.path()), name));
  }
  folder.Write("tokenizer.json", kTwoTokens);
  EXPECT_EQ(TokenizerOfFolder(folder.path()).value(), folder.path());
}

// What has the name of a tokenizer is never ignored.
TEST(OpenTokenizerTest, RefusesWhatIsNoFile) {
  for (const char* const name : {"tokenizer.json", "tokenizer_config.json"}) {
    const TempFolder folder;
    const std::string path = folder / name;
    if (std::string_view(name) != "tokenizer.json") folder.Write("tokenizer.json", kTwoTokens);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_TRUE(Refused(OpenTokenizer(folder.path()), "it is a pipe", ErrorCode::kNotFound));
    std::filesystem::remove(path);
    std::filesystem::create_symlink("nowhere", path);
    EXPECT_TRUE(Refused(OpenTokenizer(folder.path()), "No such file", ErrorCode::kNotFound));
    EXPECT_TRUE(HasTokenizer(folder.path()));
  }
}

TEST(OpenTokenizerTest, GenerationEndsAtANumberOrAList) {
  const TempFolder folder;
  folder.Write("tokenizer.json", kTwoTokens);
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(OpenTokenizer(folder.path())->ends_of_text, Ids());
  for (const auto& [text, ids] :
       {std::pair("{}", Ids()), std::pair(R"({"eos_token_id": null})", Ids()),
        std::pair(R"({"eos_token_id": 7})", Ids{7}),
        std::pair(R"({"eos_token_id": [7, 0]})", Ids{7, 0})}) {
    const std::string file = folder.Write("generation_config.json", text);
    const OpenedTokenizer opened = OpenTokenizer(folder.path()).value();
    EXPECT_EQ(opened.ends_of_text, ids) << text;
    EXPECT_EQ(opened.files.back(), file);
  }
  folder.Write("generation_config.json", R"({"eos_token_id": ["a"]})");
  EXPECT_TRUE(Contains(OpenTokenizer(folder.path()).error().line(), "generation_config.json: eos"));
}

TEST(OpenTokenizerTest, ErrorsNameTheFile) {
  const TempFolder folder;
  const auto message = [](const std::string& path) { return OpenTokenizer(path).error().line(); };
  EXPECT_TRUE(Contains(message(folder / "missing"), "missing"));
  EXPECT_TRUE(Contains(message(folder.path()), "neither"));
  EXPECT_TRUE(Contains(message(folder.Write("tokenizer.model", "no model")), "tokenizer.model: "));
  EXPECT_TRUE(Contains(message(folder.Write("tokenizer.json", "{")), "tokenizer.json: "));
}

}  // namespace
}  // namespace penstock
