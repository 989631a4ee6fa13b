// Fetches memory into the cache before it is used. A prefetch never faults, so the address may lie
// past the end of the array. It is computed as a number, since a pointer must not leave its array.
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

}  // namespace penstock
