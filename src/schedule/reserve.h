// Memory for what has an entry an action.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <vector>

namespace penstock {

// vector.reserve(count), in huge pages where that is long: a first touch of millions of entries is
// otherwise mostly page faults, and hundreds of lanes visited in turn miss the TLB. Linux hands out
// 2 MiB pages on advice; elsewhere, and for short vectors, this is reserve alone.
template <class T>
void ReserveLong(std::vector<T>& vector, std::size_t count) {
  vector.reserve(count);
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kLong = std::size_t{64} << 10;  // bytes, from which the call pays
  const std::size_t bytes = count * sizeof(T);
  if (bytes < kLong) return;
  // To the borders of the pages that it lies in: its neighbours on the heap are of its kind.
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(vector.data());
  const std::uintptr_t first = begin & ~(kHugePage - 1);
  const std::uintptr_t last = (begin + bytes + kHugePage - 1) & ~(kHugePage - 1);
  // A refusal only costs time; what is not mapped is left out.
  (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace penstock
