// Breaks text into lines between words.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns `text`, broken at blanks into lines that end at column `width` or before, in characters.
// The text starts at column `indent`, and so does each further line, after that many blanks. A word
// that is longer has a line of its own.
std::string Wrap(std::string_view text, std::size_t width, std::size_t indent = 0);

}  // namespace penstock
