// The name of this machine in its network.
#pragma once

#include <string>

namespace penstock {

inline constexpr const char* kUnknownMachine = "?";

// Returns the name, or kUnknownMachine if it cannot be read. Thread-safe.
std::string MachineName();

}  // namespace penstock
