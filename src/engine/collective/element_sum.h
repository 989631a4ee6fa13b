// Element types of reductions, and sums whose order is fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

enum class ElementType : std::uint8_t { kFloat32, kBfloat16, kFloat64, kInt64 };

// Returns the size of an element in bytes.
std::size_t BytesOfElement(ElementType type);
// "float32"
std::string_view NameOf(ElementType type);

// Writes to each element of `sum` the sum of that element of all parts, added in the order of the
// parts. bfloat16 is added in float32 and rounded once, to nearest even. int64 wraps around. All
// parts and `sum` have the same size, a multiple of the element's. A part may be the same memory as
// `sum`, or must not overlap it. Requires: there is a part. Memory need not be aligned.
void SumInOrder(const std::vector<std::span<const std::byte>>& parts, std::span<std::byte> sum,
                ElementType type);

}  // namespace penstock
