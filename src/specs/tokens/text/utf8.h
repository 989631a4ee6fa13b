// Valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns `text` if it is valid UTF-8. Otherwise sets `buffer` to a copy in which U+FFFD replaces
// each maximal part of a broken character, as most decoders do, and returns that.
std::string_view ValidUtf8(std::string_view text, std::string& buffer);

// Appends a code point.
void AppendUtf8(char32_t code_point, std::string& text);

// Reads the code point at `at` and sets `at` to the next one. Requires: valid UTF-8 and at <
// text.size().
char32_t NextCodePoint(std::string_view text, std::size_t& at);

// Returns the position of the first byte at or after `from` that is at least `least`, which is at
// least 0x80; text.size() if there is none.
std::size_t FindByteFrom(std::string_view text, std::size_t from, unsigned char least);

}  // namespace penstock
