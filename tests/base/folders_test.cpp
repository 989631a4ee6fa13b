#include "base/folders.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "tests/engine/train/temp_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

TEST(Folders, CreatesAndRemovesOnlyItsOwn) {
  const TempFolder folder;
  fs::create_directory(folder / "mine");
  fs::create_directory_symlink("mine", folder / "link");
  for (const std::string path : {"a/b/c", "mine/b", "link/b/c", "a/b/", "./d/../e", "link", ""}) {
    std::vector<std::string> created;
    const std::string whole = folder / path;
    ASSERT_TRUE(CreateFolders(whole, &created)) << path;
    EXPECT_TRUE(fs::is_directory(whole)) << path;
    RemoveFolders(created);
    EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder.path()), {}), 2) << path;
    EXPECT_TRUE(fs::is_symlink(folder / "link"));
  }
}

TEST(Folders, KeepsWhatHasBeenAddedOrReplaced) {
  const TempFolder folder;
  std::vector<std::string> created;
  ASSERT_TRUE(CreateFolders(folder / "a/b/c", &created));
  EXPECT_EQ(created.size(), 3U);
  fs::remove(folder / "a/b/c");
  fs::create_directory_symlink("nowhere", folder / "a/b/c");
  RemoveFolders(created);
  EXPECT_TRUE(fs::is_symlink(folder / "a/b/c"));
}

TEST(Folders, NamesWhatIsInTheWay) {
  const TempFolder folder;
  folder.Write("file", "");
  fs::create_symlink("file", folder / "to_file");
  fs::create_symlink("loop", folder / "loop");
  fs::create_directory_symlink("/no/such/disk", folder / "runs");
  fs::create_directory_symlink("runs", folder / "chain");
  for (const auto& [path, part, why] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"runs", "runs", "is a link to /no/such/disk, which does not exist"},
           {"runs/english", "runs", "is a link to /no/such/disk, which does not exist"},
           {"runs/", "runs", "is a link to /no/such/disk, which does not exist"},
           {"chain/a", "chain", "is a link to runs, which does not exist"},
           {"loop/a", "loop", "is a link to loop, which does not exist"},
           {"file", "file", "is not a folder"},
           {"file/a", "file", "is not a folder"},
           {"to_file/a", "to_file", "is not a folder"}}) {
    std::vector<std::string> created;
    const Status status = CreateFolders(folder / path, &created);
    ASSERT_FALSE(status) << path;
    EXPECT_TRUE(status.error().line().starts_with(
        fmt::format("cannot create the folder {}: {} {}", folder / path, folder / part, why)))
        << status.error().line();
    RemoveFolders(created);
  }
  for (const char* const link : {"to_file", "loop", "runs", "chain"}) {
    EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  }
}

// Each way to write a whole file.
TEST(Folders, FilesAreWrittenThroughLinks) {
  const TempFolder folder;
  const std::string disk = folder.Write("disk/report.html", "old");
  const std::string link = folder / "report.html", dangling = folder / "dangling";
  fs::create_symlink("disk/report.html", link);
  fs::create_symlink("/no/such/disk/report.html", dangling);
  const std::string_view text = "new";
  const auto write = [&](int way, const std::string& path) -> Status {
    if (way == 0) return WriteFileAtomically(path, text);
    return WriteFileDurably(path, {&text, 1});
  };
  for (const int way : {0, 1}) {
    ASSERT_TRUE(WriteFileAtomically(disk, "old"));
    EXPECT_TRUE(write(way, link));
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(ReadFile(disk).value(), "new");
    const Status status = write(way, dangling);
    ASSERT_FALSE(status);
    EXPECT_TRUE(status.error().line().starts_with(
        fmt::format("cannot write {0}: {0} is a link to /no/such/disk/report.html", dangling)))
        << status.error().line();
    EXPECT_TRUE(fs::is_symlink(dangling));
  }
}

}  // namespace
}  // namespace penstock
