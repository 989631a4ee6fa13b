// The tokenizer whose tokens are bytes.
#pragma once

#include <cstdint>

#include "tokens/tokenizer.h"

namespace penstock {

// Ends a document of bytes. Text has no zero byte.
inline constexpr std::uint8_t kEndOfDocument = 0;

// Decode omits kEndOfDocument. Texts need not be valid UTF-8.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace penstock
