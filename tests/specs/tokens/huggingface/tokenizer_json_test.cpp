#include "tokens/huggingface/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/results.h"

namespace penstock {
namespace {

using nlohmann::json;

json SmallTokenizer() {
  return json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true},
                     {"id": 6, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"}, "behavior": "Isolated",
                      "invert": false},
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                  {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3, "?": 4},
              "merges": ["a b"], "unk_token": "?"}})");
}

std::vector<TokenId> Ids(const json& file, std::string_view text,
                         SpecialTokens special = SpecialTokens::kOmit) {
  const auto tokenizer = ReadTokenizerJson(file.dump());
  EXPECT_TRUE(tokenizer) << tokenizer.error().line();
  std::vector<TokenId> ids;
  EXPECT_TRUE((*tokenizer)->MakeEncoder()->Encode(text, special, ids));
  return ids;
}

TEST(TokenizerJsonTest, EncodesAndDecodes) {
  EXPECT_EQ(Ids(SmallTokenizer(), "ab ba"), (std::vector<TokenId>{2, 3, 1, 0}));
  EXPECT_EQ(Ids(SmallTokenizer(), "a</s>b"), (std::vector<TokenId>{0, 6, 1}));
  EXPECT_EQ(Ids(SmallTokenizer(), "ax", SpecialTokens::kAdd), (std::vector<TokenId>{5, 0, 4}));
  const auto tokenizer = ReadTokenizerJson(SmallTokenizer().dump()).value();
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{5, 2, 3, 1, 99}), "ab b");
  EXPECT_EQ(tokenizer->vocabulary_size(), 7);
  EXPECT_EQ(tokenizer->end_of_text(), 6U);
  EXPECT_EQ(tokenizer->IdOf("<s>"), 5U);
}

// An encoder keeps words; they must not depend on what was encoded before.
TEST(TokenizerJsonTest, RepeatedTextHasTheSameIds) {
  const auto tokenizer = ReadTokenizerJson(SmallTokenizer().dump()).value();
  const auto encoder = tokenizer->MakeEncoder();
  std::vector<TokenId> first;
  std::vector<TokenId> second;
  ASSERT_TRUE(encoder->Encode("ab ba abab xyz", SpecialTokens::kOmit, first));
  ASSERT_TRUE(encoder->Encode("ab ba abab xyz", SpecialTokens::kOmit, second));
  EXPECT_EQ(first, second);
}

struct Refusal {
  const char* pointer;
  json value;
  const char* names;
};

TEST(TokenizerJsonTest, RefusesWhatIsNotSupportedByName) {
  const Refusal refusals[] = {
      {"/model/type", "Unigram", "Unigram"},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/normalizer", {{"type", "Lowercase"}}, "Lowercase"},
      {"/pre_tokenizer/type", "UnicodeScripts", "UnicodeScripts"},
      {"/pre_tokenizer/behavior", "Sideways", "Sideways"},
      {"/pre_tokenizer/pattern/Regex", "[a&&b]", "&&"},
      {"/pre_tokenizer/pattern/Regex", "(", "regular expression"},
      {"/post_processor/type", "BertProcessing", "BertProcessing"},
      {"/post_processor/special_tokens/<s>/ids/0", 900, "900"},
      {"/decoder/type", "WordPiece", "WordPiece"},
      {"/model/merges/0", "a c", "merge 0"},
      {"/model/vocab/a", -1, "id"},
      {"/model/unk_token", "nothing", "nothing"},
  };
  for (const Refusal& refusal : refusals) {
    json file = SmallTokenizer();
    file[json::json_pointer(refusal.pointer)] = refusal.value;
    EXPECT_TRUE(Refused(ReadTokenizerJson(file.dump()), refusal.names)) << refusal.pointer;
  }
}

// Words of a vocabulary whose tokens have spaces only at their start are encoded one by one. The
// result equals encoding the text at once, which a token across words makes necessary.
TEST(TokenizerJsonTest, WordsAreIndependentOnlyIfNoMergeCrossesThem) {
  json file = SmallTokenizer();
  file.erase("pre_tokenizer");
  file["model"] =
      json::parse(R"({"type": "BPE", "vocab": {"a": 0, "▁": 1, "▁a": 2, "a▁": 3, "a▁a": 4},
                                  "merges": [["▁", "a"], ["a", "▁a"]]})");
  EXPECT_EQ(Ids(file, "a▁a▁a"), (std::vector<TokenId>{4, 2}));
  file["model"]["merges"].erase(1);
  EXPECT_EQ(Ids(file, "a▁a▁a"), (std::vector<TokenId>{0, 2, 2}));
}

}  // namespace
}  // namespace penstock
