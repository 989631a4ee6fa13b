#include "tokens/kinds/sentencepiece.h"

#include <sentencepiece_processor.h>

#include "base/text/quote.h"

namespace penstock {
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePieceEncoder : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceProcessor& processor) : processor_(processor) {}

  Status Encode(std::string_view text, SpecialTokens /*special*/,
                std::vector<TokenId>& ids) override {
    const auto status = processor_.Encode({text.data(), text.size()}, &encoded_);
    if (!status.ok()) return InvalidArgument("SentencePiece: {}", Printable(status.ToString()));
    ids.insert(ids.end(), encoded_.begin(), encoded_.end());
    return {};
  }

 private:
  const SentencePieceProcessor& processor_;
  std::vector<int> encoded_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceProcessor& processor() { return processor_; }

  std::unique_ptr<Encoder> MakeEncoder() const override {
    return std::make_unique<SentencePieceEncoder>(processor_);
  }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::vector<int> known;
    for (const TokenId id : ids) {
      if (id < static_cast<TokenId>(processor_.GetPieceSize()))
        known.push_back(static_cast<int>(id));
    }
    std::string text;
    const auto status = processor_.Decode(known, &text);
    PENSTOCK_CHECK(status.ok(), "{}", status.ToString());
    return text;
  }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  std::optional<TokenId> IdOf(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    if (processor_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<TokenId>(id);
  }
  std::optional<TokenId> end_of_text() const override {
    if (processor_.eos_id() < 0) return std::nullopt;
    return static_cast<TokenId>(processor_.eos_id());
  }

 private:
  SentencePieceProcessor processor_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadSentencePiece(std::string_view model) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  const auto status = tokenizer->processor().LoadFromSerializedProto({model.data(), model.size()});
  if (!status.ok()) {
    return InvalidArgument("it is not a model of SentencePiece: {}", Printable(status.ToString()));
  }
  if (tokenizer->vocabulary_size() <= 0) return InvalidArgument("the vocabulary is empty");
  return tokenizer;
}

}  // namespace penstock
