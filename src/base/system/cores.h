#pragma once

#include <algorithm>
#include <thread>

namespace penstock {

// Returns the number of cores that this process may use.
inline int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace penstock
