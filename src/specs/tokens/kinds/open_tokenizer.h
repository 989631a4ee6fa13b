// Opens the tokenizer of a model or a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokens/tokenizer.h"

namespace penstock {

// The name of the tokenizer whose tokens are bytes.
inline constexpr std::string_view kByteTokenizer = "bytes";

struct OpenedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  // Digest of everything that determines the ids.
  std::string digest;
  // What a copy of the tokenizer needs: paths. Empty for bytes.
  std::vector<std::string> files;
  // Tokens that end a generated text, if a generation_config.json names any.
  std::vector<std::int64_t> ends_of_text = {};

  // Returns the name for the user: the path of the file, or "bytes".
  std::string name() const { return files.empty() ? std::string(kByteTokenizer) : files.front(); }
};

// Opens "bytes", a file tokenizer.json or tokenizer.model, or the one in a folder, where
// tokenizer.json goes first. The end of text is what tokenizer_config.json in the same folder names
// as eos_token, if there is one, and generation_config.json there has the ends of generated texts.
// Errors: kNotFound, or kInvalidArgument with the file's path.
Result<OpenedTokenizer> OpenTokenizer(const std::string& path);

// Whether the folder has a tokenizer.
bool HasTokenizer(const std::string& folder);

// Returns what OpenTokenizer opens for a model's folder: the folder, or an empty text if it has no
// tokenizer. Errors: kInvalidArgument if the folder has only files of tokenizers of other kinds.
Result<std::string> TokenizerOfFolder(const std::string& folder);

// Returns the ids that a JSON file names as eos_token_id: a number, a list, or none. Errors:
// kNotFound, or kInvalidArgument with the file's path.
Result<std::vector<std::int64_t>> EosTokenIds(const std::string& path);

}  // namespace penstock
