// AddedTokens: tokens that are found in text before it is split into words, such as special tokens.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokens/tokenizer.h"

namespace penstock {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // Decode omits it
  bool normalized = false;   // found in normalized text
  bool single_word = false;  // only between characters that are not of words
  bool left_strip = false;   // includes the white space before it,
  bool right_strip = false;  // and after it
};

// Reads the member "added_tokens" of the file. Errors: kInvalidArgument.
Result<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json& file);

// A part of a text: an added token, or the text between two of them.
struct TextPart {
  std::string_view text;
  std::optional<TokenId> token;
};

// Finds some added tokens in text. Immutable, so any thread may use it.
class AddedTokenFinder {
 public:
  // Adds a token to find; `content` is its text.
  void Add(const AddedToken& token, const std::string& content);
  bool empty() const { return tokens_.empty(); }

  // Appends the parts of the text: the longest token at the leftmost position first. Requires:
  // valid UTF-8.
  void Split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  const AddedToken* LongestAt(std::string_view text, std::size_t at, std::size_t& length) const;

  std::unordered_map<std::string, AddedToken> tokens_;
  std::array<std::vector<std::size_t>, 256> lengths_;  // by first byte; longest first
};

}  // namespace penstock
