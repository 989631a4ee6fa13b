// Opens the tokenizer of a model or a run.
#pragma once

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
  // Of what the ids depend on; equal tokenizers have equal ones.
  std::string digest;
  // What a copy of the tokenizer needs: paths. Empty for bytes.
  std::vector<std::string> files;
};

// Opens "bytes", a file tokenizer.json or tokenizer.model, or the one in a folder, where
// tokenizer.json goes first. The end of text is what tokenizer_config.json in the same folder names
// as eos_token, if there is one. Errors: kNotFound, or kInvalidArgument with the file's path.
Result<OpenedTokenizer> OpenTokenizer(const std::string& path);

// Whether the folder has a tokenizer.
bool HasTokenizer(const std::string& folder);

}  // namespace penstock
