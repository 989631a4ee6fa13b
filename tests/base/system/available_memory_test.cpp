#include "base/system/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMib = 1 << 20;

// Writes the files of an emulated system into a folder.
class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() {
    fs::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:       9999 kB\nMemAvailable:   2048 kB\nBuffers: 7 kB\n");
  }
  ~AvailableMemoryTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& content) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << content;
  }
  AvailableMemory Read() const { return ReadAvailableMemory(root_).value(); }

  const std::string root_ = testing::TempDir() + "available_memory_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(AvailableMemoryTest, IsThatOfTheMachineWithoutControlGroups) {
  EXPECT_EQ(Read().bytes, 2 * kMib);
  EXPECT_EQ(Read().of, "this machine");
}

TEST_F(AvailableMemoryTest, IsLimitedByTheTightestControlGroup) {
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("/sys/fs/cgroup/outer/inner/memory.current", "100\n");
  EXPECT_EQ(Read().of, "this machine");
  Write("/sys/fs/cgroup/outer/memory.max", "1048576\n");
  Write("/sys/fs/cgroup/outer/memory.current", "1000000\n");
  Write("/sys/fs/cgroup/outer/memory.stat", "anon 4\ninactive_file 200000\n");
  EXPECT_EQ(Read().bytes, kMib - 1000000 + 200000);
  EXPECT_EQ(Read().of, "the control group /outer");
}

TEST_F(AvailableMemoryTest, ReadsControlGroupsOfVersionOne) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(Read().of, "this machine");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n");
  EXPECT_EQ(Read().bytes, 0);
  EXPECT_EQ(Read().of, "the control group /");
}

TEST_F(AvailableMemoryTest, IsUnknownIfTheSystemDoesNotReportIt) {
  EXPECT_FALSE(ReadAvailableMemory(root_ + "/none"));
}

TEST(AvailableMemory, IsKnownOnThisMachine) {
  const auto available = ReadAvailableMemory();
  ASSERT_TRUE(available);
  EXPECT_GT(available->bytes, kMib);
}

}  // namespace
}  // namespace penstock
