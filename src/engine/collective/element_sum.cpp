#include "collective/element_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace penstock {
namespace {

// What is added: the element itself, but float32 for bfloat16 and an unsigned integer for int64,
// because signed overflow is undefined.
template <class Stored>
struct SumOf {
  using Type = Stored;
  static Stored Widen(Stored value) { return value; }
  static Stored Narrow(Stored value) { return value; }
};

struct Bfloat16 {
  std::uint16_t bits;
};

template <>
struct SumOf<Bfloat16> {
  using Type = float;
  static float Widen(Bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
  }
  static Bfloat16 Narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;  // rounding could make it an infinity
    return {static_cast<std::uint16_t>(is_nan ? bits >> 16 | 0x40 : rounded)};
  }
};

// Adds a block of elements at a time, so that the partial sums stay in the cache and `sum` may be
// one of the parts.
template <class Stored>
void SumBlocks(const std::vector<std::span<const std::byte>>& parts, std::span<std::byte> sum) {
  using Sum = SumOf<Stored>;
  constexpr std::size_t kBlock = 1024;  // elements
  std::array<typename Sum::Type, kBlock> total;
  std::array<Stored, kBlock> block;
  const std::size_t elements = sum.size() / sizeof(Stored);
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t count = std::min(kBlock, elements - begin);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      std::memcpy(block.data(), parts[part].data() + begin * sizeof(Stored),
                  count * sizeof(Stored));
      if (part == 0) {
        for (std::size_t i = 0; i < count; ++i) total[i] = Sum::Widen(block[i]);
      } else {
        for (std::size_t i = 0; i < count; ++i) total[i] += Sum::Widen(block[i]);
      }
    }
    for (std::size_t i = 0; i < count; ++i) block[i] = Sum::Narrow(total[i]);
    std::memcpy(sum.data() + begin * sizeof(Stored), block.data(), count * sizeof(Stored));
  }
}

}  // namespace

std::size_t BytesOfElement(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
    case ElementType::kInt64:
      break;
  }
  return 8;
}

std::string_view NameOf(ElementType type) {
  constexpr std::string_view kNames[] = {"float32", "bfloat16", "float64", "int64"};
  return kNames[static_cast<std::size_t>(type)];
}

void SumInOrder(const std::vector<std::span<const std::byte>>& parts, std::span<std::byte> sum,
                ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return SumBlocks<float>(parts, sum);
    case ElementType::kBfloat16:
      return SumBlocks<Bfloat16>(parts, sum);
    case ElementType::kFloat64:
      return SumBlocks<double>(parts, sum);
    case ElementType::kInt64:
      return SumBlocks<std::uint64_t>(parts, sum);
  }
}

}  // namespace penstock
