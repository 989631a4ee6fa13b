#pragma once

#include <algorithm>
#include <thread>

namespace penstock {

// Returns the number of cores that this process may use.
inline int Cores() {
#ifdef __wasm__  // libc++ has no threads there
  return 1;
#else
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#endif
}

}  // namespace penstock
