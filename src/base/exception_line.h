// The message of an exception, as one line for the user.
#pragma once

#include <exception>
#include <string>

namespace penstock {

// Returns the first line of what(): libtorch appends a stack trace to its messages. Reports a
// failed allocation, of the standard library or of libtorch, in our own words.
std::string ExceptionLine(const std::exception& error);

}  // namespace penstock
