// Characters that the tokenizers package classifies otherwise than this machine's libraries do.
//
// It has tables of Unicode 16 for regular expressions (Oniguruma 6.9.10), while Debian 12's PCRE2
// has Unicode 14; and tables of Unicode 9 for normalization.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns `text` if PCRE2 classifies all its characters as Oniguruma does. Otherwise sets `buffer`
// to a copy in which an older character of the same category, with as many bytes, stands in for
// each other one, and returns that. Matches have the same positions in both. Requires: valid UTF-8.
std::string_view WithStandIns(std::string_view text, std::string& buffer);

// Returns the character that WithStandIns puts in its place, or the character itself.
char32_t StandInOf(char32_t character);

// Whether the character is newer than the package's tables for normalization, which leave such
// characters unchanged.
bool IsNewToNormalization(char32_t code_point);

}  // namespace penstock
