// tests/interop/tensorboard_events.py reads such files with TensorBoard's own reader.
#include "monitor/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "tests/engine/train/temp_folder.h"

namespace penstock {
namespace {

// Returns the records' bytes; TFRecord: 8 bytes length, 4 checksum, bytes, 4 checksum.
std::vector<std::string> RecordsOf(const std::string& file) {
  const std::string bytes = ReadFile(file).value();
  std::vector<std::string> records;
  for (std::size_t at = 0; at + 12 < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    records.push_back(bytes.substr(at + 12, length));
    at += length + 16;
  }
  return records;
}

TEST(EventFile, TheFirstAppendCreatesTheFile) {
  const TempFolder folder;
  EventFile file(folder.path(), 7);
  EXPECT_FALSE(file.is_open());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const std::vector<Scalar> scalars = {{"loss", 1.5}, {"busy/rank0", 0.25}};
  ASSERT_TRUE(file.Append(7, scalars));
  ASSERT_TRUE(file.Append(300, scalars));
  EXPECT_TRUE(file.is_open());
  EXPECT_NE(file.path().find("/events.out.tfevents."), std::string::npos);
  const auto records = RecordsOf(file.path());
  ASSERT_EQ(records.size(), 4U);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(records[2].find("busy/rank0"), std::string::npos);
}

TEST(EventFile, ReportsAFolderThatIsGone) {
  EventFile file("/no/such/folder", 0);
  EXPECT_FALSE(file.Append(0, {}));
}

}  // namespace
}  // namespace penstock
