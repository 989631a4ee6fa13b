#include "base/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

// Values that xxhsum -H2 prints for the same bytes.
TEST(Digest, IsXxh3Of128Bits) {
  EXPECT_EQ(Digest(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Digest("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, DiffersIfOneBitDiffers) {
  std::string bytes(4096, 'a');
  std::set<std::string> seen = {Digest(bytes)};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= static_cast<char>(1 << (i % 8));
    seen.insert(Digest(changed));
  }
  EXPECT_EQ(seen.size(), bytes.size() + 1);
}

}  // namespace
}  // namespace penstock
