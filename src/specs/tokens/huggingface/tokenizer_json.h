// Tokenizers of Hugging Face's tokenizers package: the file tokenizer.json with byte-pair encoding.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokens/tokenizer.h"

namespace penstock {

// Reads the text of a tokenizer.json. Truncation and padding in it are not applied.
// `end_of_text` is the content of the token that ends documents; if it is empty, a special token of
// a usual name does. Errors: kInvalidArgument, one line without the file's name, for what is
// invalid or not supported.
Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(std::string_view text,
                                                     const std::string& end_of_text = "");

}  // namespace penstock
