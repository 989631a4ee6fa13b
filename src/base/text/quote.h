// Makes text from a user or a file safe to print within a line.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns `text` with every control character and every byte that is not valid UTF-8 escaped: "\n",
// "\x1b". The result can neither break a line nor send a command to a terminal.
std::string Printable(std::string_view text);

// Returns the start of `text`, printable and in single quotes, with "..." in place of the rest.
// Error messages quote names, values and cells with it.
std::string Quote(std::string_view text);

}  // namespace penstock
