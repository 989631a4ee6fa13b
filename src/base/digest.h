// Digest: names content, and detects damaged files.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns the 128-bit XXH3 hash as 32 hexadecimal digits. It detects damage, not
// attacks: whoever can write the content can write the hash, too.
std::string Digest(std::string_view bytes);
// Returns it after the name of the hash, as index files store it: "xxh128:...".
std::string NamedDigest(std::string_view bytes);

}  // namespace penstock
