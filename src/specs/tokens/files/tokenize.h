// Tokenizes text files into a token folder, on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokens/files/document_reader.h"
#include "tokens/files/token_folder.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {

struct TokenizeOptions {
  DocumentOptions documents;
  std::uint64_t shard_tokens = 100'000'000;
  int threads = 1;
  // Called from time to time with what is done so far. May be empty.
  std::function<void(std::uint64_t bytes, std::uint64_t tokens)> progress;
  const std::atomic<bool>* stop = nullptr;  // once it is set, ends with kUnavailable
};

// Writes the documents of `files` to a new folder `to`, in order. Each has the special tokens that
// the tokenizer puts around a text, and ends with its end of text. The result does not depend on
// the threads. Errors: kNotFound, kInvalidArgument and kUnavailable; the folder is then not there.
Result<TokenIndex> TokenizeFiles(const std::vector<std::string>& files,
                                 const OpenedTokenizer& tokenizer, const std::string& to,
                                 const TokenizeOptions& options);

// Appends the tokens of a document, as above.
Status EncodeDocument(const Tokenizer& tokenizer, Encoder& encoder, std::string_view document,
                      std::vector<TokenId>& ids);

}  // namespace penstock
