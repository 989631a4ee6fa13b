// The printable characters that stand for bytes in the vocabularies of byte-level tokenizers
// (Radford et al., Language Models are Unsupervised Multitask Learners, 2019).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns the character of a byte, in UTF-8.
std::string_view CharacterOfByte(std::uint8_t byte);

// Returns the bytes that the characters of `text` stand for, or nothing if one of them stands for
// none. Requires: valid UTF-8.
std::optional<std::string> BytesOfCharacters(std::string_view text);

}  // namespace penstock
