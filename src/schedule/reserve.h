// Memory for long lanes.
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "schedule/schedule.h"

namespace penstock {

// lane.reserve(count), in huge pages where the lane is long enough: a first touch of millions of
// actions is otherwise mostly page faults (Linux hands out 2 MiB pages on advice; elsewhere, and
// for short lanes, this is reserve alone).
inline void ReserveLane(Lane& lane, std::size_t count) {
  lane.reserve(count);
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(lane.data());
  const std::uintptr_t first = (begin + kHugePage - 1) & ~(kHugePage - 1);
  const std::uintptr_t last = (begin + count * sizeof(Action)) & ~(kHugePage - 1);
  // A refusal only costs time.
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace penstock
