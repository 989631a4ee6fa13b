#include "tokens/text/utf8.h"

#include <unicode/utf8.h>

#include <cstdint>
#include <cstring>

namespace penstock {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::size_t FindByteFrom(std::string_view text, std::size_t from, unsigned char least) {
  while (from < text.size()) {
    std::uint64_t eight = 0;
    while (from + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + from, sizeof eight);
      if ((eight & kHighBits) != 0) break;
      from += sizeof eight;
    }
    for (const std::size_t end = std::min(from + sizeof eight, text.size()); from < end; ++from) {
      if (static_cast<unsigned char>(text[from]) >= least) return from;
    }
  }
  return text.size();
}

std::string_view ValidUtf8(std::string_view text, std::string& buffer) {
  const auto length = static_cast<std::int64_t>(text.size());
  bool copies = false;
  std::size_t copied = 0;
  for (std::size_t at = 0; (at = FindByteFrom(text, at, 0x80)) < text.size();) {
    auto next = static_cast<std::int64_t>(at);
    UChar32 code_point = 0;
    U8_NEXT(text.data(), next, length, code_point);
    if (code_point < 0) {
      if (!copies) buffer.clear();
      copies = true;
      buffer.append(text, copied, at - copied);
      buffer += kReplacement;
      copied = static_cast<std::size_t>(next);
    }
    at = static_cast<std::size_t>(next);
  }
  if (!copies) return text;
  buffer.append(text, copied);
  return buffer;
}

void AppendUtf8(char32_t code_point, std::string& text) {
  char bytes[U8_MAX_LENGTH];
  std::size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, static_cast<UChar32>(code_point));
  text.append(bytes, length);
}

char32_t NextCodePoint(std::string_view text, std::size_t& at) {
  UChar32 code_point = 0;
  U8_NEXT_UNSAFE(text.data(), at, code_point);
  return static_cast<char32_t>(code_point);
}

}  // namespace penstock
