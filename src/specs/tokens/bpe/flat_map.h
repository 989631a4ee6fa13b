// FlatMap: a hash map from 64-bit keys to small values, for lookups in hot loops.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/mix_bits.h"

namespace penstock {

template <class Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = std::numeric_limits<std::uint64_t>::max();

  // `most` is the largest number of keys. At most half of the slots are used.
  explicit FlatMap(std::size_t most = 0)
      : slots_(std::bit_ceil(2 * most + 2)), mask_(slots_.size() - 1) {}

  // Sets the value of a key other than kNoKey. Requires: at most `most` keys.
  void Set(std::uint64_t key, const Value& value) {
    std::size_t at = MixBits(key) & mask_;
    while (slots_[at].key != kNoKey && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, value};
  }
  // Returns null if the map lacks the key.
  const Value* Find(std::uint64_t key) const {
    std::size_t at = MixBits(key) & mask_;
    while (slots_[at].key != key) {
      if (slots_[at].key == kNoKey) return nullptr;
      at = (at + 1) & mask_;
    }
    return &slots_[at].value;
  }

 private:
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value{};
  };
  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace penstock
