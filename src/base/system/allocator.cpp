#include "base/system/allocator.h"

#include <malloc.h>

namespace penstock {

void KeepFreedMemory() {
  constexpr int kNeverMap = 1 << 30;         // bytes: blocks come from the heap, not from mmap
  constexpr int kNeverTrim = 2'000'000'000;  // bytes kept at the heap's end
  constexpr int kGrowBy = 64 << 20;          // bytes
  mallopt(M_MMAP_THRESHOLD, kNeverMap);
  mallopt(M_TRIM_THRESHOLD, kNeverTrim);
  mallopt(M_TOP_PAD, kGrowBy);
}

}  // namespace penstock
