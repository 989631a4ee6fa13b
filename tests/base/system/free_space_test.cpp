#include "base/system/free_space.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

TEST(FreeSpace, RefusesWhatTheDiskHasNoRoomFor) {
  const std::string folder = testing::TempDir();
  EXPECT_TRUE(CheckFreeSpace(folder, 1, "files"));
  const Status status = CheckFreeSpace(folder, std::numeric_limits<std::int64_t>::max(), "files");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  const std::string line = status.error().line();
  EXPECT_TRUE(line.starts_with(folder + ": its disk has ")) << line;
  EXPECT_TRUE(line.ends_with("; free some, or use another folder")) << line;
}

TEST(FreeSpace, PassesWhereNothingIsKnown) {
  EXPECT_TRUE(CheckFreeSpace("/no/such/folder", std::numeric_limits<std::int64_t>::max(), "files"));
  EXPECT_TRUE(CheckFreeSpace("/proc", std::numeric_limits<std::int64_t>::max(), "files"));
}

}  // namespace
}  // namespace penstock
