// What an exception says, as one line for the user.
#pragma once

#include <exception>
#include <string>

namespace penstock {

// The first line of what(): libtorch's messages carry a stack trace after it. A failed allocation,
// the standard library's or libtorch's, is reported in words of ours.
std::string ExceptionLine(const std::exception& error);

}  // namespace penstock
