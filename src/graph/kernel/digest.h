// Digest: names content, and detects damaged files.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns the 128-bit XXH3 hash as 32 hexadecimal digits. It need not resist attacks: only the user
// can write the files that it names and checks (owned_folder.h).
std::string Digest(std::string_view bytes);

}  // namespace penstock
