// Counts calls of operator new per thread in the program that links count_allocations.cpp.
#pragma once

#include <cstdint>

namespace penstock {

// Returns the number of calls by the calling thread since it started.
std::int64_t AllocationsOfThisThread();

}  // namespace penstock
