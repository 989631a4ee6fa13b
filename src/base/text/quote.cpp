#include "base/text/quote.h"

#include <algorithm>
#include <cstddef>

namespace penstock {
namespace {

constexpr std::size_t kLongestQuote = 60;  // characters

// Returns the length in bytes of the UTF-8 character at the front of `text`, or 0 if it is invalid
// or a control character.
std::size_t PrintableLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Refuses overlong forms, surrogates, values above U+10FFFF and the control characters from
  // U+0080 on.
  const unsigned char second = byte(1);
  const bool refused = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                       (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f) ||
                       (lead == 0xc2 && second < 0xa0);
  return refused ? 0 : length;
}

void AppendEscaped(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c == '\r') {
    out += "\\r";
  } else {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
}

// Appends the first character of `text`, printable, and removes it.
void TakeCharacter(std::string_view& text, std::string& out) {
  const std::size_t length = PrintableLength(text);
  if (length == 0) {
    AppendEscaped(out, text.front());
  } else {
    out += text.substr(0, length);
  }
  text.remove_prefix(std::max<std::size_t>(length, 1));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) TakeCharacter(text, printable);
  return printable;
}

std::string Quote(std::string_view text) {
  std::string quoted = "'";
  for (std::size_t i = 0; i < kLongestQuote && !text.empty(); ++i) TakeCharacter(text, quoted);
  return quoted + (text.empty() ? "'" : "...'");
}

}  // namespace penstock
