// Text from a user or a file, made safe to print within a line.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns `text` with every control character and every byte that is not UTF-8 escaped: "\n",
// "\x1b". It can neither break a line nor send a command to a terminal.
std::string Printable(std::string_view text);

// Returns the start of `text`, printable and in single quotes; "..." stands for what is left out.
// Error messages quote names, values and cells with it.
std::string Quote(std::string_view text);

}  // namespace penstock
