// BytePairModel: encodes words by byte-pair encoding, as the tokenizers package does.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokens/bpe/merges.h"
#include "tokens/bpe/word_cache.h"
#include "tokens/tokenizer.h"

namespace penstock {

using Vocabulary = std::unordered_map<std::string, TokenId>;

struct BytePairParts {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unknown;                       // stands for unknown characters
  bool fuse_unknown = false;   // one for each run of unknown characters
  bool byte_fallback = false;  // bytes of unknown characters become tokens such as <0x0A>
  bool ignore_merges = false;  // a word of the vocabulary is one token
  bool byte_level = false;     // words are bytes, whose characters (byte_alphabet.h) are tokens
};

// Memory of one encoder.
struct WordScratch {
  WordCache cache;
  MergeScratch merge;
};

// Immutable, so any thread may use it.
class BytePairModel {
 public:
  // Errors: kInvalidArgument if a merge uses or makes a token that the vocabulary lacks.
  static Result<BytePairModel> Make(BytePairParts parts);

  // Appends the ids of a word that is not empty. Requires: valid UTF-8, unless it is byte-level.
  void EncodeWord(std::string_view word, WordScratch& scratch, std::vector<TokenId>& ids) const;

 private:
  BytePairModel() = default;
  void EncodePart(std::string_view part, WordScratch& scratch, std::vector<TokenId>& ids) const;
  void AddSymbols(std::string_view part, std::vector<TokenId>& ids) const;
  // `pending`: whether an unknown character before this one has no id yet.
  void AddMissing(std::string_view character, bool& pending, std::vector<TokenId>& ids) const;
  bool MergesNeverCrossWords() const;

  BytePairParts parts_;
  Merges merges_;
  Vocabulary words_;                                  // with ignore_merges: what is one token
  std::array<std::optional<TokenId>, 256> byte_ids_;  // of bytes, or of ASCII characters
  FlatMap<TokenId> character_ids_;                    // of other characters, by code point
  std::array<std::optional<TokenId>, 256> fallback_;
  TokenId unknown_ = 0;
  bool parts_words_ = false;  // words are encoded in parts that begin with spaces
};

}  // namespace penstock
