// Text generation, token by token. A cache of keys and values makes each token cost one forward of
// one token.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tokens/tokenizer.h"
#include "train/evaluation/language_model.h"
#include "train/evaluation/next_token.h"

namespace penstock {

struct WriteOptions {
  std::string prompt = {};  // empty: the start of a document
  int tokens = 300;         // to generate, without the prompt
  Sampling sampling = {};
  std::uint64_t seed = 1;
  const Tokenizer* tokenizer = nullptr;     // null: bytes
  const std::atomic<bool>* stop = nullptr;  // if set, the text ends early
  // The text ends before any of these tokens. Empty: before the end of text of the tokenizer.
  std::vector<std::int64_t> ends_of_text = {};
  bool cache = true;  // false computes all tokens of the window again for each new one
};

// Returns the tokens that the model reads before it generates: the start of a document and the
// prompt. Throws std::runtime_error if the tokenizer cannot encode the prompt.
std::vector<TokenId> StartOfText(const WriteOptions& options);

// Generates text after the prompt, token by token. When the model's longest sequence is full, its
// earlier half is dropped and the later half is read again. Ends of documents of bytes appear as
// lines of "%". Bytes that are not valid UTF-8, and control characters, become '?'. A model without
// ForwardSlice runs without a cache. Throws std::runtime_error if the model's output is not finite.
std::string WriteText(const LanguageModel& model, const WriteOptions& options);
// Writes text on all processes of the model. Uses the stop of the model, not `options.stop`.
std::string WriteText(DistributedModel& model, const WriteOptions& options);

}  // namespace penstock
