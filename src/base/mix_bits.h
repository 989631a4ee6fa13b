// Derives seeds from seeds, so that similar numbers give unrelated ones.
#pragma once

#include <cstdint>

namespace penstock {

// Splitmix64's finalizer (Steele et al., Fast Splittable Pseudorandom Number Generators, 2014).
constexpr std::uint64_t MixBits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Returns an independent seed for part `part` of what `seed` seeds.
constexpr std::uint64_t SeedOf(std::uint64_t seed, std::uint64_t part) {
  return MixBits(seed + (part + 1) * 0x9E3779B97F4A7C15ULL);
}

}  // namespace penstock
