// Fetches memory into the cache ahead of its use. The address may lie past the end, or be of
// nothing at all: a prefetch never faults. So it is summed as a number, since a pointer must not
// leave its array.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

template <class T>
inline const void* AddressAhead(const T* base, std::size_t count) {
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(base) + count * sizeof(T));
}
template <class T>
inline void PrefetchRead(const T* base, std::size_t count) {
  __builtin_prefetch(AddressAhead(base, count), 0);
}
template <class T>
inline void PrefetchWrite(const T* base, std::size_t count) {
  __builtin_prefetch(AddressAhead(base, count), 1);
}

}  // namespace penstock
