#include "tokens/bpe/byte_pair_model.h"

#include <algorithm>

#include "base/text/quote.h"
#include "tokens/bpe/byte_alphabet.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, a space in such vocabularies
constexpr std::size_t kAscii = 0x80;

std::optional<TokenId> FindToken(const Vocabulary& vocabulary, std::string_view token) {
  const auto found = vocabulary.find(std::string(token));
  if (found == vocabulary.end()) return std::nullopt;
  return found->second;
}

// Returns the start of the next part after `from`: a space that follows another character.
std::size_t NextPart(std::string_view word, std::size_t from) {
  while ((from = word.find(kSpace, from + 1)) != word.npos) {
    if (!word.substr(0, from).ends_with(kSpace)) return from;
  }
  return word.size();
}

}  // namespace

Result<BytePairModel> BytePairModel::Make(BytePairParts parts) {
  BytePairModel model;
  model.merges_ = Merges(parts.merges.size());
  for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    const auto left_id = FindToken(parts.vocabulary, left);
    const auto right_id = FindToken(parts.vocabulary, right);
    const auto merged = FindToken(parts.vocabulary, left + right);
    if (!left_id || !right_id || !merged) {
      return InvalidArgument("merge {} of {} and {}: the vocabulary lacks {}", rank, Quote(left),
                             Quote(right),
                             Quote(!left_id    ? left
                                   : !right_id ? right
                                               : left + right));
    }
    model.merges_.Set(*left_id, *right_id, {static_cast<std::uint32_t>(rank), *merged});
  }
  if (parts.unknown) {
    const auto id = FindToken(parts.vocabulary, *parts.unknown);
    if (!id) return InvalidArgument("the vocabulary lacks unk_token {}", Quote(*parts.unknown));
    model.unknown_ = *id;
  }
  model.character_ids_ = FlatMap<TokenId>(parts.vocabulary.size());
  for (const auto& [token, id] : parts.vocabulary) {
    std::size_t at = 0;
    if (token.empty()) continue;
    const char32_t character = NextCodePoint(token, at);
    if (at == token.size()) model.character_ids_.Set(character, id);
    if (!parts.ignore_merges) continue;
    const auto word = parts.byte_level ? BytesOfCharacters(token) : token;
    if (word) model.words_.emplace(*word, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto index = static_cast<std::uint8_t>(byte);
    if (parts.byte_level) {
      model.byte_ids_[index] = FindToken(parts.vocabulary, CharacterOfByte(index));
    } else if (index < kAscii) {
      model.byte_ids_[index] = FindToken(parts.vocabulary, std::string(1, static_cast<char>(byte)));
    }
    if (parts.byte_fallback) {
      model.fallback_[index] = FindToken(parts.vocabulary, fmt::format("<0x{:02X}>", byte));
    }
  }
  model.parts_ = std::move(parts);
  model.parts_words_ = model.MergesNeverCrossWords();
  model.parts_.merges.clear();
  return model;
}

// Then no token contains a space that follows another character, so that the text before a word has
// no influence on the ids of the word.
bool BytePairModel::MergesNeverCrossWords() const {
  if (parts_.byte_level || parts_.ignore_merges) return false;
  if (!parts_.vocabulary.contains(std::string(kSpace))) return false;
  return std::ranges::none_of(parts_.merges, [](const auto& merge) {
    const std::string token = merge.first + merge.second;
    return NextPart(token, 0) != token.size();
  });
}

void BytePairModel::EncodeWord(std::string_view word, WordScratch& scratch,
                               std::vector<TokenId>& ids) const {
  if (!parts_words_) return EncodePart(word, scratch, ids);
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t end = NextPart(word, begin);
    EncodePart(word.substr(begin, end - begin), scratch, ids);
    begin = end;
  }
}

void BytePairModel::EncodePart(std::string_view part, WordScratch& scratch,
                               std::vector<TokenId>& ids) const {
  const std::span<const TokenId> known = scratch.cache.Find(part);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const std::size_t begin = ids.size();
  const auto word = parts_.ignore_merges ? FindToken(words_, part) : std::optional<TokenId>();
  if (word) {
    ids.push_back(*word);
  } else {
    AddSymbols(part, ids);
    merges_.MergeAll(ids, begin, scratch.merge);
  }
  scratch.cache.Insert(part, std::span(ids).subspan(begin));
}

void BytePairModel::AddSymbols(std::string_view part, std::vector<TokenId>& ids) const {
  bool pending = false;
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t begin = at;
    const auto byte = static_cast<std::uint8_t>(part[at]);
    const TokenId* id = nullptr;
    std::string_view character;
    if (parts_.byte_level || byte < kAscii) {
      ++at;
      character = parts_.byte_level ? CharacterOfByte(byte) : part.substr(begin, 1);
      if (byte_ids_[byte]) id = &*byte_ids_[byte];
    } else {
      id = character_ids_.Find(NextCodePoint(part, at));
      character = part.substr(begin, at - begin);
    }
    if (id == nullptr) {
      AddMissing(character, pending, ids);
      continue;
    }
    if (pending) ids.push_back(unknown_);
    pending = false;
    ids.push_back(*id);
  }
  if (pending) ids.push_back(unknown_);
}

// Without a token for it, the package drops a character.
void BytePairModel::AddMissing(std::string_view character, bool& pending,
                               std::vector<TokenId>& ids) const {
  const auto fallback = [&](char byte) { return fallback_[static_cast<std::uint8_t>(byte)]; };
  if (std::ranges::all_of(character, [&](char byte) { return fallback(byte).has_value(); })) {
    for (const char byte : character) ids.push_back(*fallback(byte));
    return;
  }
  if (!parts_.unknown) return;
  if (pending && !parts_.fuse_unknown) ids.push_back(unknown_);
  pending = true;
}

}  // namespace penstock
