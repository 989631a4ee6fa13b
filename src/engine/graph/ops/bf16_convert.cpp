#include "graph/ops/bf16_convert.h"

#include <bit>

// Also compiles the functions for AVX2, because the build targets any x86-64.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(PENSTOCK_SANITIZED)
#define PENSTOCK_FOR_AVX2 __attribute__((target_clones("default", "avx2")))
#else
#define PENSTOCK_FOR_AVX2
#endif

namespace penstock {
namespace {

inline float Widen(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Has no branches, so that compilers vectorize loops of it.
inline std::uint16_t RoundOne(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  constexpr std::uint32_t kNan = 0x7FC0;
  return static_cast<std::uint16_t>(value != value ? kNan : rounded);
}

}  // namespace

PENSTOCK_FOR_AVX2 void WidenBf16(const std::uint16_t* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Widen(from[i]);
}

PENSTOCK_FOR_AVX2 void RoundToBf16(const float* from, float scale, std::uint16_t* to,
                                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = RoundOne(scale * from[i]);
}

PENSTOCK_FOR_AVX2 void AddAndRoundToBf16(const float* from, float scale, const std::uint16_t* added,
                                         std::int64_t stride, float added_scale, std::uint16_t* to,
                                         std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = RoundOne(scale * from[i] + added_scale * Widen(added[i]));
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = RoundOne(scale * from[i] + added_scale * Widen(added[i * stride]));
  }
}

}  // namespace penstock
