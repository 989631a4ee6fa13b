#include "base/digest.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // the header is the library
#include <xxhash.h>

namespace penstock {

std::string Digest(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string NamedDigest(std::string_view bytes) { return "xxh128:" + Digest(bytes); }

}  // namespace penstock
