// Errors as the program reports them.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// Prints one line to stderr. The message may quote paths and errors of libraries, of any length and
// with any bytes.
void PrintError(const std::string& message);
int ExitCodeOf(const Error& error);

}  // namespace penstock
