// WordCache: the ids of short words that were encoded lately.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/mix_bits.h"
#include "tokens/tokenizer.h"

namespace penstock {

// Two megabytes, which a core's cache holds. A word has one slot, whose last word it replaces.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  // Returns the ids, or nothing if the cache lacks the word.
  std::span<const TokenId> Find(std::string_view word) const {
    if (word.size() > kLongestWord) return {};
    const Slot& slot = slots_[SlotOf(word)];
    if (slot.length != word.size()) return {};
    if (std::memcmp(slot.word.data(), word.data(), word.size()) != 0) return {};
    return {slot.ids.data(), slot.count};
  }
  // Requires: `word` is not empty.
  void Insert(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() > kLongestWord || ids.size() > kMostIds) return;
    Slot& slot = slots_[SlotOf(word)];
    slot.length = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::ranges::copy(word, slot.word.begin());
    std::ranges::copy(ids, slot.ids.begin());  // a word may have none
  }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 15U;
  static constexpr std::size_t kLongestWord = 30;
  static constexpr std::size_t kMostIds = 8;

  struct Slot {
    std::uint8_t length = 0;  // 0: empty
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word;
    std::array<TokenId, kMostIds> ids;
  };
  static_assert(sizeof(Slot) == 64);

  static std::size_t SlotOf(std::string_view word) {
    std::uint64_t hash = word.size();
    std::uint64_t part = 0;
    while (word.size() > sizeof part) {
      std::memcpy(&part, word.data(), sizeof part);
      hash = MixBits(hash ^ part);
      word.remove_prefix(sizeof part);
    }
    part = 0;
    std::memcpy(&part, word.data(), word.size());
    return MixBits(hash + part) % kSlots;
  }

  std::vector<Slot> slots_;
};

}  // namespace penstock
