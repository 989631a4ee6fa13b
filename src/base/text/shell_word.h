// Text as a word of a shell.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns the text as one word of a POSIX shell, in single quotes if it needs any.
std::string ShellWord(std::string_view text);

}  // namespace penstock
