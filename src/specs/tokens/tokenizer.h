// Tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

using TokenId = std::uint32_t;

// Whether Encode adds the tokens that the tokenizer puts around every text, such as the beginning
// of text.
enum class SpecialTokens { kAdd, kOmit };

// Encodes texts and keeps caches between them. Threads: one at a time.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of a text. Errors: kInvalidArgument if a pattern of the tokenizer needs too
  // many steps on this text; `ids` is then incomplete.
  virtual Status Encode(std::string_view text, SpecialTokens special,
                        std::vector<TokenId>& ids) = 0;
};

// A vocabulary. Immutable, so any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokenizer must outlive the encoder.
  virtual std::unique_ptr<Encoder> MakeEncoder() const = 0;

  // Returns the bytes of the text, without special tokens. Ids outside of the vocabulary have no
  // text. The bytes of an incomplete character are not valid UTF-8.
  virtual std::string Decode(std::span<const TokenId> ids) const = 0;

  // Every id is smaller.
  virtual std::int64_t vocabulary_size() const = 0;
  // Returns the id of a token by its content.
  virtual std::optional<TokenId> IdOf(std::string_view token) const = 0;
  // Returns the id that ends a document, if the tokenizer has one.
  virtual std::optional<TokenId> end_of_text() const = 0;
};

}  // namespace penstock
