// Counts calls of operator new, a thread at a time, in the program that links this.
#pragma once

#include <cstdint>

namespace penstock {

// By the calling thread, since it started.
std::int64_t AllocationsOfThisThread();

}  // namespace penstock
