// Models of SentencePiece (Kudo and Richardson, EMNLP 2018): the file tokenizer.model.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokens/tokenizer.h"

namespace penstock {

// Reads a model. Encode adds no special tokens, as SentencePiece's own. Errors: kInvalidArgument,
// one line without the file's name.
Result<std::unique_ptr<Tokenizer>> ReadSentencePiece(std::string_view model);

}  // namespace penstock
