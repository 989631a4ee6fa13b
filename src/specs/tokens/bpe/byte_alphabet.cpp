#include "tokens/bpe/byte_alphabet.h"

#include <array>
#include <vector>

#include "tokens/text/utf8.h"

namespace penstock {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::vector<int> bytes = std::vector<int>(0x200, -1);  // by code point

  Alphabet() {
    char32_t unprintable = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t character = printable ? static_cast<char32_t>(byte) : unprintable++;
      AppendUtf8(character, characters[byte]);
      bytes[character] = byte;
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string_view CharacterOfByte(std::uint8_t byte) { return TheAlphabet().characters[byte]; }

std::optional<std::string> BytesOfCharacters(std::string_view text) {
  const std::vector<int>& byte_of = TheAlphabet().bytes;
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = NextCodePoint(text, at);
    if (character >= byte_of.size() || byte_of[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of[character]);
  }
  return bytes;
}

}  // namespace penstock
