#include "tests/engine/runtime/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local std::int64_t allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// Replaces the sanitizer's version, which would not match the delete below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock {
std::int64_t AllocationsOfThisThread() { return allocations; }
}  // namespace penstock
