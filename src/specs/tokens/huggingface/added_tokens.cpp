#include "tokens/huggingface/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "base/text/strict_json.h"
#include "tokens/huggingface/json_parts.h"
#include "tokens/text/newer_characters.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

using nlohmann::json;

bool IsSpace(char32_t character) { return u_isUWhiteSpace(static_cast<UChar32>(character)) != 0; }

bool IsOfWord(char32_t character) {
  const auto c = static_cast<UChar32>(StandInOf(character));
  if (u_hasBinaryProperty(c, UCHAR_ALPHABETIC) != 0) return true;
  if (u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0) return true;
  constexpr std::uint32_t kMask = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(c) & kMask) != 0;
}

// Returns the start of the character before `at`. Requires: at > 0.
std::size_t Previous(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool HasWordAt(std::string_view text, std::size_t at) { return IsOfWord(NextCodePoint(text, at)); }

bool IsSingleWord(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && HasWordAt(text, Previous(text, begin))) return false;
  return end == text.size() || !HasWordAt(text, end);
}

std::size_t SpaceBefore(std::string_view text, std::size_t at) {
  while (at > 0) {
    const std::size_t previous = Previous(text, at);
    std::size_t read = previous;
    if (!IsSpace(NextCodePoint(text, read))) break;
    at = previous;
  }
  return at;
}

std::size_t SpaceAfter(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!IsSpace(NextCodePoint(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

Result<std::vector<AddedToken>> ReadAddedTokens(const json& file) {
  constexpr const char* kWhat = "added_tokens";
  std::vector<AddedToken> tokens;
  const auto found = file.find(kWhat);
  if (found == file.end() || found->is_null()) return tokens;
  if (!found->is_array()) return InvalidArgument("{} is not a list", kWhat);
  for (const json& each : *found) {
    AddedToken token;
    PENSTOCK_TRY(token.content, TextMember(each, "content", kWhat));
    PENSTOCK_TRY(const json* const id, MemberOf(each, "id", kWhat));
    PENSTOCK_TRY(token.id, ReadId(*id, kWhat));
    PENSTOCK_TRY(token.special, FlagMember(each, "special", kWhat, false));
    PENSTOCK_TRY(token.normalized, FlagMember(each, "normalized", kWhat, !token.special));
    PENSTOCK_TRY(token.single_word, FlagMember(each, "single_word", kWhat, false));
    PENSTOCK_TRY(token.left_strip, FlagMember(each, "lstrip", kWhat, false));
    PENSTOCK_TRY(token.right_strip, FlagMember(each, "rstrip", kWhat, false));
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::Add(const AddedToken& token, const std::string& content) {
  if (content.empty()) return;
  tokens_.insert_or_assign(content, token);
  std::vector<std::size_t>& lengths = lengths_[static_cast<unsigned char>(content.front())];
  if (std::ranges::find(lengths, content.size()) != lengths.end()) return;
  lengths.push_back(content.size());
  std::ranges::sort(lengths, std::greater<>());
}

const AddedToken* AddedTokenFinder::LongestAt(std::string_view text, std::size_t at,
                                              std::size_t& length) const {
  for (const std::size_t each : lengths_[static_cast<unsigned char>(text[at])]) {
    if (each > text.size() - at) continue;
    const auto found = tokens_.find(std::string(text.substr(at, each)));
    if (found == tokens_.end()) continue;
    length = each;
    return &found->second;
  }
  return nullptr;
}

void AddedTokenFinder::Split(std::string_view text, std::vector<TextPart>& parts) const {
  std::size_t done = 0;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size() && !empty(); at += length) {
    const AddedToken* const token = LongestAt(text, at, length);
    if (token == nullptr) {
      length = 1;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + length;
    if (token->single_word && !IsSingleWord(text, begin, end)) continue;
    // White space that belongs to the previous token stays there.
    if (token->left_strip) begin = std::max(SpaceBefore(text, begin), done);
    if (token->right_strip) end = SpaceAfter(text, end);
    if (done < begin) parts.push_back({text.substr(done, begin - done), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
}

}  // namespace penstock
