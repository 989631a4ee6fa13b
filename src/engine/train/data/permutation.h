// A random order of 0 to size - 1 that needs no memory.
#pragma once

#include <bit>
#include <cstdint>

#include "base/mix_bits.h"

namespace penstock {

// Returns the number at position `index` of the order that `seed` chooses. Requires: index < size
// <= 2^62.
//
// A Feistel network permutes the numbers of the next even count of bits. It is applied again until
// the result is below `size` (cycle walking; Black and Rogaway, Ciphers with Arbitrary Finite
// Domains, 2002), four times on average at most.
inline std::uint64_t PermutedIndex(std::uint64_t index, std::uint64_t size, std::uint64_t seed) {
  constexpr int kRounds = 6;
  const int half = (std::bit_width(size - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (int round = 0; round < kRounds; ++round) {
      const auto part = static_cast<std::uint64_t>(round);
      const std::uint64_t mixed = left ^ (MixBits(SeedOf(seed, part) ^ right) & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

}  // namespace penstock
