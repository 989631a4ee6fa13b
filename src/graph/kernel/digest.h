// Digest: a name for bytes, and a check that a file's bytes are whole.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns the XXH3 hash of 128 bits as 32 hexadecimal digits. It detects damage and tells sources
// apart, and is not meant to withstand an attacker: who can write the files that it guards owns
// them anyway (owned_folder.h).
std::string Digest(std::string_view bytes);

}  // namespace penstock
