#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/results.h"

namespace penstock {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("files_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FilesTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  std::size_t Count() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  std::filesystem::path folder_;
};

TEST_F(FilesTest, ReadsWhatWasWritten) {
  std::string content(200'000, 'x');
  content[777] = '\0';
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old"));
  ASSERT_TRUE(WriteFileAtomically(Path("a"), content));
  EXPECT_EQ(ReadFile(Path("a")).value(), content);
  EXPECT_EQ(Count(), 1U);
}

TEST_F(FilesTest, WritesIntoDevices) {
  EXPECT_TRUE(WriteFileAtomically("/dev/null", "x"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  std::filesystem::create_symlink("/dev/full", Path("link"));
  const Status status = WriteFileAtomically(Path("link"), "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().line(), "cannot write " + Path("link") + ": No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(FilesTest, ReadsTextOnly) {
  const std::pair<std::string, std::string> cases[] = {
      {"0F0,0B0\n", ""},
      {"\xFF\xFE"
       "0\0F\0",
       " is UTF-16; save it as UTF-8"},
      {"\xFE\xFF\0"
       "0",
       " is UTF-16; save it as UTF-8"},
      {std::string("0F0\0", 4), " is not a text file: a table is needed"}};
  for (const auto& [content, error] : cases) {
    ASSERT_TRUE(WriteFileAtomically(Path("a"), content));
    const auto text = ReadTextFile(Path("a"), {100, "table"});
    EXPECT_EQ(text ? "" : text.error().line(), error.empty() ? "" : Path("a") + error);
  }
}

TEST_F(FilesTest, RefusesAnUnwritableFileAndLeavesNothing) {
  EXPECT_EQ(WriteFileAtomically(Path("none/a"), "x").error().code, ErrorCode::kInvalidArgument);
  std::filesystem::create_directories(folder_ / "folder" / "full");
  EXPECT_FALSE(WriteFileAtomically(Path("folder"), "x"));
  EXPECT_EQ(Count(), 1U);
}

TEST_F(FilesTest, MissingFileIsNotFound) {
  EXPECT_EQ(ReadFile(Path("none")).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(ReadFile(folder_.string()));
}

TEST_F(FilesTest, FilesAboveTheLimitAreRefusedByName) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), std::string(100, 'x')));
  EXPECT_EQ(ReadFile(Path("a"), {100, "note"})->size(), 100U);
  EXPECT_TRUE(Refused(ReadFile(Path("a"), {99, "note"}), "a note may have at most 99 B",
                      ErrorCode::kInvalidArgument));
  EXPECT_FALSE(ReadFile("/dev/zero", {1 << 20, "note"}));
}

TEST_F(FilesTest, RefusesPipesAndDevices) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(LineOf(ReadFile(Path("fifo"))),
            "cannot read " + Path("fifo") +
                ": it is a pipe, not a regular file; save the content to a "
                "file");
  EXPECT_NE(ReadFile("/dev/zero").error().line().find("a device"), std::string::npos);
  std::filesystem::create_symlink("/dev/zero", folder_ / "link");
  EXPECT_FALSE(ReadFile(Path("link")));
}

}  // namespace
}  // namespace penstock
