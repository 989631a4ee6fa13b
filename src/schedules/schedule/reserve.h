// Memory for vectors with one entry per action.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <vector>

namespace penstock {

// Calls vector.reserve(count), in huge pages if that is long. Otherwise the first touch of millions
// of entries is mostly page faults, and visiting hundreds of lanes in turn misses the TLB. Linux
// maps 2 MiB pages on advice; elsewhere, and for short vectors, this is only reserve().
template <class T>
void ReserveLong(std::vector<T>& vector, std::size_t count) {
  vector.reserve(count);
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kLong = std::size_t{64} << 10;  // bytes; the call pays from here on
  const std::size_t bytes = count * sizeof(T);
  if (bytes < kLong) return;
  // Extends to page boundaries: the adjacent heap blocks are vectors of the same kind.
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(vector.data());
  const std::uintptr_t first = begin & ~(kHugePage - 1);
  const std::uintptr_t last = (begin + bytes + kHugePage - 1) & ~(kHugePage - 1);
  // A refusal only costs time. Unmapped pages are ignored.
  (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace penstock
