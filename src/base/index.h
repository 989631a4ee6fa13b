// Stages, ranks and microbatches are plain `int`, because their arithmetic is the algorithm.
// Subscripts take a plain int; Index converts where a product of sizes must not overflow an int,
// and where an int is compared with a size.
#pragma once

#include <cstddef>

namespace penstock {

// Requires: `i` is not negative.
template <class T>
constexpr std::size_t Index(T i) {
  return static_cast<std::size_t>(i);
}

}  // namespace penstock
