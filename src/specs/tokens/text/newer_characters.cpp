#include "tokens/text/newer_characters.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <vector>

#include "tokens/text/utf8.h"

namespace penstock {
namespace {

// Old characters by general category and length in UTF-8.
constexpr char32_t kCf3 = 0x200E;
constexpr char32_t kLl3 = 0x1E01;
constexpr char32_t kLu3 = 0x1E00;
constexpr char32_t kMc3 = 0x903;
constexpr char32_t kMn3 = 0x900;
constexpr char32_t kPo3 = 0x964;
constexpr char32_t kSo3 = 0x2400;
constexpr char32_t kCf4 = 0x110BD;
constexpr char32_t kLl4 = 0x10428;
constexpr char32_t kLm4 = 0x16B40;
constexpr char32_t kLo4 = 0x10000;
constexpr char32_t kLu4 = 0x10400;
constexpr char32_t kMc4 = 0x11000;
constexpr char32_t kMn4 = 0x10A01;
constexpr char32_t kNd4 = 0x104A0;
constexpr char32_t kNo4 = 0x10107;
constexpr char32_t kPd4 = 0x10EAD;
constexpr char32_t kPo4 = 0x10100;
constexpr char32_t kSm4 = 0x1D6C1;
constexpr char32_t kSo4 = 0x10137;
constexpr char32_t kHan = 0x20000;

struct StandIn {
  char32_t first, last;
  char32_t character;
};

// U+180E is a space in PCRE2 only. The others were assigned after Unicode 14.
constexpr StandIn kStandIns[] = {
    {0x897, 0x897, kMn3},     {0xCF3, 0xCF3, kMc3},     {0xECE, 0xECE, kMn3},
    {0x180E, 0x180E, kCf3},   {0x1B4E, 0x1B4F, kPo3},   {0x1B7F, 0x1B7F, kPo3},
    {0x1C89, 0x1C89, kLu3},   {0x1C8A, 0x1C8A, kLl3},   {0x2427, 0x2429, kSo3},
    {0x2FFC, 0x2FFF, kSo3},   {0x31E4, 0x31E5, kSo3},   {0x31EF, 0x31EF, kSo3},
    {0xA7CB, 0xA7CC, kLu3},   {0xA7CD, 0xA7CD, kLl3},   {0xA7DA, 0xA7DA, kLu3},
    {0xA7DB, 0xA7DB, kLl3},   {0xA7DC, 0xA7DC, kLu3},   {0x105C0, 0x105F3, kLo4},
    {0x10D40, 0x10D49, kNd4}, {0x10D4A, 0x10D4D, kLo4}, {0x10D4E, 0x10D4E, kLm4},
    {0x10D4F, 0x10D4F, kLo4}, {0x10D50, 0x10D65, kLu4}, {0x10D69, 0x10D6D, kMn4},
    {0x10D6E, 0x10D6E, kPd4}, {0x10D6F, 0x10D6F, kLm4}, {0x10D70, 0x10D85, kLl4},
    {0x10D8E, 0x10D8F, kSm4}, {0x10EC2, 0x10EC4, kLo4}, {0x10EFC, 0x10EFF, kMn4},
    {0x1123F, 0x11240, kLo4}, {0x11241, 0x11241, kMn4}, {0x11380, 0x11389, kLo4},
    {0x1138B, 0x1138B, kLo4}, {0x1138E, 0x1138E, kLo4}, {0x11390, 0x113B5, kLo4},
    {0x113B7, 0x113B7, kLo4}, {0x113B8, 0x113BA, kMc4}, {0x113BB, 0x113C0, kMn4},
    {0x113C2, 0x113C2, kMc4}, {0x113C5, 0x113C5, kMc4}, {0x113C7, 0x113CA, kMc4},
    {0x113CC, 0x113CD, kMc4}, {0x113CE, 0x113CE, kMn4}, {0x113CF, 0x113CF, kMc4},
    {0x113D0, 0x113D0, kMn4}, {0x113D1, 0x113D1, kLo4}, {0x113D2, 0x113D2, kMn4},
    {0x113D3, 0x113D3, kLo4}, {0x113D4, 0x113D5, kPo4}, {0x113D7, 0x113D8, kPo4},
    {0x113E1, 0x113E2, kMn4}, {0x116D0, 0x116E3, kNd4}, {0x1171E, 0x1171E, kMc4},
    {0x11B00, 0x11B09, kPo4}, {0x11BC0, 0x11BE0, kLo4}, {0x11BE1, 0x11BE1, kPo4},
    {0x11BF0, 0x11BF9, kNd4}, {0x11F00, 0x11F01, kMn4}, {0x11F02, 0x11F02, kLo4},
    {0x11F03, 0x11F03, kMc4}, {0x11F04, 0x11F10, kLo4}, {0x11F12, 0x11F33, kLo4},
    {0x11F34, 0x11F35, kMc4}, {0x11F36, 0x11F3A, kMn4}, {0x11F3E, 0x11F3F, kMc4},
    {0x11F40, 0x11F40, kMn4}, {0x11F41, 0x11F41, kMc4}, {0x11F42, 0x11F42, kMn4},
    {0x11F43, 0x11F4F, kPo4}, {0x11F50, 0x11F59, kNd4}, {0x11F5A, 0x11F5A, kMn4},
    {0x1342F, 0x1342F, kLo4}, {0x13439, 0x1343F, kCf4}, {0x13440, 0x13440, kMn4},
    {0x13441, 0x13446, kLo4}, {0x13447, 0x13455, kMn4}, {0x13460, 0x143FA, kLo4},
    {0x16100, 0x1611D, kLo4}, {0x1611E, 0x16129, kMn4}, {0x1612A, 0x1612C, kMc4},
    {0x1612D, 0x1612F, kMn4}, {0x16130, 0x16139, kNd4}, {0x16D40, 0x16D42, kLm4},
    {0x16D43, 0x16D6A, kLo4}, {0x16D6B, 0x16D6C, kLm4}, {0x16D6D, 0x16D6F, kPo4},
    {0x16D70, 0x16D79, kNd4}, {0x18CFF, 0x18CFF, kLo4}, {0x1B132, 0x1B132, kLo4},
    {0x1B155, 0x1B155, kLo4}, {0x1CC00, 0x1CCEF, kSo4}, {0x1CCF0, 0x1CCF9, kNd4},
    {0x1CD00, 0x1CEB3, kSo4}, {0x1D2C0, 0x1D2D3, kNo4}, {0x1DF25, 0x1DF2A, kLl4},
    {0x1E030, 0x1E06D, kLm4}, {0x1E08F, 0x1E08F, kMn4}, {0x1E4D0, 0x1E4EA, kLo4},
    {0x1E4EB, 0x1E4EB, kLm4}, {0x1E4EC, 0x1E4EF, kMn4}, {0x1E4F0, 0x1E4F9, kNd4},
    {0x1E5D0, 0x1E5ED, kLo4}, {0x1E5EE, 0x1E5EF, kMn4}, {0x1E5F0, 0x1E5F0, kLo4},
    {0x1E5F1, 0x1E5FA, kNd4}, {0x1E5FF, 0x1E5FF, kPo4}, {0x1F6DC, 0x1F6DC, kSo4},
    {0x1F774, 0x1F776, kSo4}, {0x1F77B, 0x1F77F, kSo4}, {0x1F7D9, 0x1F7D9, kSo4},
    {0x1F8B2, 0x1F8BB, kSo4}, {0x1F8C0, 0x1F8C1, kSo4}, {0x1FA75, 0x1FA77, kSo4},
    {0x1FA87, 0x1FA89, kSo4}, {0x1FA8F, 0x1FA8F, kSo4}, {0x1FAAD, 0x1FAAF, kSo4},
    {0x1FABB, 0x1FABF, kSo4}, {0x1FAC6, 0x1FAC6, kSo4}, {0x1FACE, 0x1FACF, kSo4},
    {0x1FADA, 0x1FADC, kSo4}, {0x1FADF, 0x1FADF, kSo4}, {0x1FAE8, 0x1FAE9, kSo4},
    {0x1FAF7, 0x1FAF8, kSo4}, {0x1FBCB, 0x1FBEF, kSo4}, {0x2B739, 0x2B739, kHan},
    {0x2EBF0, 0x2EE5D, kHan}, {0x31350, 0x323AF, kHan}};
constexpr char32_t kEnd = 0x323B0;     // all are smaller,
constexpr unsigned char kLead = 0xE0;  // and have at least three bytes

// Returns the character that stands in for each one, 0 for most.
const std::vector<char32_t>& StandInTable() {
  static const std::vector<char32_t> table = [] {
    std::vector<char32_t> characters(kEnd);
    for (const StandIn& each : kStandIns) {
      std::fill(characters.begin() + each.first, characters.begin() + each.last + 1,
                each.character);
    }
    return characters;
  }();
  return table;
}

// By major version.
constexpr int kNormalizationVersion = 9;

}  // namespace

std::string_view WithStandIns(std::string_view text, std::string& buffer) {
  const std::vector<char32_t>& table = StandInTable();
  bool copies = false;
  for (std::size_t at = 0; (at = FindByteFrom(text, at, kLead)) < text.size();) {
    const std::size_t begin = at;
    const char32_t character = NextCodePoint(text, at);
    if (character >= kEnd || table[character] == 0) continue;
    if (!copies) buffer = text;
    copies = true;
    std::string other;
    AppendUtf8(table[character], other);
    std::copy(other.begin(), other.end(), buffer.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return copies ? std::string_view(buffer) : text;
}

char32_t StandInOf(char32_t character) {
  const std::vector<char32_t>& table = StandInTable();
  if (character >= kEnd || table[character] == 0) return character;
  return table[character];
}

bool IsNewToNormalization(char32_t code_point) {
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(code_point), version);
  return version[0] > kNormalizationVersion;
}

}  // namespace penstock
