#include "tokens/kinds/byte_tokenizer.h"

namespace penstock {
namespace {

class ByteEncoder : public Encoder {
 public:
  Status Encode(std::string_view text, SpecialTokens /*special*/,
                std::vector<TokenId>& ids) override {
    for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte));
    return {};
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  std::unique_ptr<Encoder> MakeEncoder() const override { return std::make_unique<ByteEncoder>(); }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id != kEndOfDocument && id < 256) text += static_cast<char>(id);
    }
    return text;
  }
  std::int64_t vocabulary_size() const override { return 256; }
  std::optional<TokenId> IdOf(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<std::uint8_t>(token.front());
  }
  std::optional<TokenId> end_of_text() const override { return kEndOfDocument; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace penstock
