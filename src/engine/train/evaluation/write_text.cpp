#include "train/evaluation/write_text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "train/data/data.h"
#include "train/evaluation/distributed_model.h"

namespace penstock {
namespace {

constexpr std::int64_t kByteTokens = 256;

// Returns the length of the valid UTF-8 character at the front, or 0.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80                      ? 1
                             : (lead >= 0xC2 && lead <= 0xDF) ? 2
                             : (lead >= 0xE0 && lead <= 0xEF) ? 3
                             : (lead >= 0xF0 && lead <= 0xF4) ? 4
                                                              : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (length < 3) return length;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool no_character = (lead == 0xED && byte(1) >= 0xA0) || (lead == 0xF4 && byte(1) >= 0x90);
  return overlong || no_character ? 0 : length;
}

std::string OnTerminal(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    if (static_cast<std::uint8_t>(text.front()) == kEndOfDocument) {
      result += "\n%\n";
      text.remove_prefix(1);
      continue;
    }
    const std::size_t length = Utf8Length(text);
    const auto front = static_cast<unsigned char>(text.front());
    const bool control = (front < 0x20 && front != '\n' && front != '\t') || front == 0x7F;
    if (length == 0 || control) {
      result += '?';
      text.remove_prefix(1);
      continue;
    }
    result += text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

// The tokens that the model reads: the last ones of a text, and a cache of those it has read.
class Window {
 public:
  Window(const DistributedModel& model, bool cached, std::int64_t vocabulary)
      : vocabulary_(vocabulary),
        most_(model.config().sequence),
        caches_(cached && model.HasForwardSlice() ? model.stages() : 0, KeyValueCache(most_)) {}

  // Returns the logits [vocabulary] of the token after `text` on the process of the last stage, an
  // undefined tensor elsewhere, and nothing after a stop. Calls must append to the same text.
  std::optional<at::Tensor> Logits(DistributedModel& model, std::int64_t number,
                                   std::span<const TokenId> text) {
    Slide(text.size());
    const std::size_t first = caches_.empty() ? begin_ : read_;
    const auto outputs =
        model.Forward(number, ToTokens(TokenSpan(text).subspan(first), 1), caches_);
    read_ = text.size();
    if (!outputs) return {};
    if (!model.has_last()) return at::Tensor();
    return outputs->front().select(1, -1).select(0, 0).narrow(0, 0, vocabulary_).cpu();
  }

 private:
  // Positions in the window change when it slides, so the cache is of no use then.
  void Slide(std::size_t length) {
    if (length - begin_ <= most_) return;
    begin_ = length - (read_ == 0 ? most_ : std::max<std::size_t>(1, most_ / 2));
    read_ = begin_;
    for (KeyValueCache& cache : caches_) cache.Clear();
  }

  std::int64_t vocabulary_;
  std::size_t most_;
  std::size_t begin_ = 0, read_ = 0;   // of the text
  std::vector<KeyValueCache> caches_;  // by stage; empty without
};

std::string TextOfTokens(std::span<const TokenId> ids, const Tokenizer* tokenizer) {
  return OnTerminal(tokenizer == nullptr ? std::string(ids.begin(), ids.end())
                                         : tokenizer->Decode(ids));
}

}  // namespace

std::vector<TokenId> StartOfText(const WriteOptions& options) {
  std::vector<TokenId> ids;
  if (options.tokenizer == nullptr) {
    ids.push_back(kEndOfDocument);
    for (const char byte : options.prompt) ids.push_back(static_cast<std::uint8_t>(byte));
    return ids;
  }
  const Status encoded =
      options.tokenizer->MakeEncoder()->Encode(options.prompt, SpecialTokens::kAdd, ids);
  if (!encoded) throw std::runtime_error(encoded.error().line());
  // In training, a document follows the end of the one before.
  if (ids.empty()) ids.push_back(options.tokenizer->end_of_text().value_or(0));
  return ids;
}

std::string WriteText(const LanguageModel& model, const WriteOptions& options) {
  DistributedModel here(model, options.stop);
  return WriteText(here, options);
}

std::string WriteText(DistributedModel& model, const WriteOptions& options) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);  // a single short sample has too little work for several threads
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  const Tokenizer* const tokenizer = options.tokenizer;
  std::vector<TokenId> ids = StartOfText(options);
  const std::size_t begin = ids.size();
  std::vector<std::int64_t> ends = options.ends_of_text;
  if (tokenizer != nullptr && ends.empty() && tokenizer->end_of_text()) {
    ends.push_back(*tokenizer->end_of_text());
  }
  Window window(model, options.cache,
                tokenizer == nullptr ? kByteTokens : tokenizer->vocabulary_size());
  for (int i = 0; i < options.tokens && !model.stopped(); ++i) {
    const std::int64_t number = model.Reserve(2);
    const auto logits = window.Logits(model, number, ids);
    if (!logits) break;
    std::vector<std::int64_t> next;
    if (model.has_last()) next = {NextToken(*logits, options.sampling, generator)};
    const auto agreed = model.FromLast(number + 1, std::move(next));
    if (!agreed || std::ranges::find(ends, agreed->front()) != ends.end()) break;
    ids.push_back(static_cast<TokenId>(agreed->front()));
  }
  return TextOfTokens(std::span(ids).subspan(begin), tokenizer);
}

}  // namespace penstock
