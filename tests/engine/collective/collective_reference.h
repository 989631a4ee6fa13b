// Slow, obvious collectives: what each rank gets, from the calls of all ranks.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "collective/rank_group.h"

namespace penstock {

using ByteVector = std::vector<std::byte>;

template <class T>
T ElementAt(const ByteVector& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void SetElementAt(ByteVector& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

inline float FloatOfBfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Returns the nearer of the two neighbors, and the even one of two equally near ones. Requires a
// finite value, not close to the largest one.
inline std::uint16_t NearestBfloat16(float value) {
  const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double below = std::fabs(static_cast<double>(value) - FloatOfBfloat16(low));
  const double above = std::fabs(static_cast<double>(value) - FloatOfBfloat16(high));
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

// The sum of element i over the ranks, in ascending order.
inline void SumElement(const std::vector<ByteVector>& inputs, std::size_t i, ElementType type,
                       ByteVector& sum, std::size_t to) {
  if (type == ElementType::kInt64) {
    std::uint64_t total = 0;
    for (const ByteVector& input : inputs) total += ElementAt<std::uint64_t>(input, i);
    SetElementAt(sum, to, total);
  } else if (type == ElementType::kFloat64) {
    double total = ElementAt<double>(inputs[0], i);
    for (std::size_t r = 1; r < inputs.size(); ++r) total += ElementAt<double>(inputs[r], i);
    SetElementAt(sum, to, total);
  } else if (type == ElementType::kFloat32) {
    float total = ElementAt<float>(inputs[0], i);
    for (std::size_t r = 1; r < inputs.size(); ++r) total += ElementAt<float>(inputs[r], i);
    SetElementAt(sum, to, total);
  } else {
    float total = FloatOfBfloat16(ElementAt<std::uint16_t>(inputs[0], i));
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      total += FloatOfBfloat16(ElementAt<std::uint16_t>(inputs[r], i));
    }
    SetElementAt(sum, to, NearestBfloat16(total));
  }
}

// Returns the elements `begin` to `end` of the sum of all inputs.
inline ByteVector SumOfRange(const std::vector<ByteVector>& inputs, std::size_t begin,
                             std::size_t end, ElementType type) {
  ByteVector sum((end - begin) * BytesOfElement(type));
  for (std::size_t i = begin; i < end; ++i) SumElement(inputs, i, type, sum, i - begin);
  return sum;
}

}  // namespace penstock
