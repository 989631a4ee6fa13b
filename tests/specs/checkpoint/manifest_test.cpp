#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "tests/results.h"
#include "tests/specs/checkpoint/small_checkpoint.h"

namespace penstock {
namespace {

// Replaces text in a valid manifest and returns the error.
std::string ErrorWith(const std::string& from, const std::string& to) {
  const TempFolder folder;
  WriteSmallCheckpoint(folder / "step-7",
                       {{{"a", {2, 3}, 0, Ascending(6)}, {"b", {4}, 0, Ascending(2)}},
                        {{"b", {4}, 2, Ascending(2)}}});
  std::string text = ReadFile(folder / "step-7/manifest.json").value();
  EXPECT_TRUE(ParseManifest(text));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << text;
  text.replace(at, from.size(), to);
  EXPECT_FALSE(ParseManifest(text)) << "the checksum";
  return LineOf(ParseManifestContent(text));
}

TEST(Manifest, ReadsWhatItWrote) {
  const TempFolder folder;
  Manifest manifest = WriteSmallCheckpoint(
      folder / "step-7",
      {{{"a", {2, 3}, 0, Ascending(6)}, {"optimizer.steps.a", {}, 0, {3}}, {"none", {0, 4}, 0, {}}},
       {}});
  EXPECT_EQ(manifest.files.size(), 1U);  // the second process has nothing to write
  EXPECT_TRUE(manifest.tensors.at("none").pieces.empty());
  for (int i = 0; i < 2; ++i) {
    const auto read = ParseManifest(FormatManifest(manifest));
    ASSERT_TRUE(read) << read.error().line();
    EXPECT_EQ(*read, manifest);
    manifest.data = {{"0a", 12, 1}, {"0b", 0, 0}};
  }
}

TEST(Manifest, RefusesTextThatIsNoManifest) {
  for (const char* text : {"", "{}", "[]", "null", "{\"checksum\":\"crc32:", "\xFF\xFE"}) {
    EXPECT_FALSE(ParseManifest(text)) << text;
    EXPECT_FALSE(ParseManifestContent(text)) << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_FALSE(ParseManifestContent(deep));
  EXPECT_FALSE(ParseManifestContent("{\"format\":" + deep));
}

TEST(Manifest, RefusesPiecesThatAreNotTheWholeTensor) {
  EXPECT_TRUE(Contains(ErrorWith("\"begin\":2", "\"begin\":1"), "tensor 'b'"));
  EXPECT_TRUE(Contains(ErrorWith("\"begin\":2", "\"begin\":3"), "tensor 'b'"));
  EXPECT_TRUE(Contains(ErrorWith("\"shape\":[2,3]", "\"shape\":[2,4]"), "its shape needs 8"));
  EXPECT_TRUE(Contains(ErrorWith("\"end\":2", "\"end\":0"), "tensor 'b'"));
}

TEST(Manifest, RefusesBoxesThatAreNotTheWholeTensor) {
  const TempFolder folder;
  const Layout left({4, 6}, {1, 0, 2}), right({4, 6}, {1, 2, 4});
  const std::string text = FormatManifest(WriteSmallCheckpoint(
      folder / "step-7", {{{"a", left, Ascending(8)}}, {{"a", right, Ascending(16)}}}));
  EXPECT_TRUE(ParseManifest(text));
  EXPECT_TRUE(Contains(text, "\"version\":2"));
  for (const char* wrong : {"[1,3,4]", "[1,1,4]", "[1,2,5]", "[0,2,4]", "[2,2,4]", "[1,2,0]",
                            "[1,2,3]", "[9223372036854775807,2,4]", "[1,2]", "[1,-2,4]", "7"}) {
    std::string changed = text;
    changed.replace(changed.find("[1,2,4]"), 7, wrong);
    EXPECT_TRUE(Contains(LineOf(ParseManifestContent(changed)), "tensor 'a'")) << wrong;
  }
}

TEST(Manifest, HasBoxesOfEqualBlocks) {
  const TempFolder folder;
  const Layout left({6, 2}, {0, 0, 1, 3}), right({6, 2}, {0, 1, 1, 3});
  const std::string text = FormatManifest(WriteSmallCheckpoint(
      folder / "step-7", {{{"a", left, Ascending(6)}}, {{"a", right, Ascending(6)}}}));
  EXPECT_TRUE(ParseManifest(text));
  EXPECT_TRUE(Contains(text, "\"version\":3"));
  for (const char* wrong : {"[0,1,1]", "[0,1,1,2]", "[0,1,1,4]", "[0,1,1,0]", "[0,2,1,3]",
                            "[0,1,2,3]", "[1,1,1,3]", "[0,1,1,3,1]"}) {
    std::string changed = text;
    changed.replace(changed.find("[0,1,1,3]"), 9, wrong);
    EXPECT_TRUE(Contains(LineOf(ParseManifestContent(changed)), "tensor 'a'")) << wrong;
  }
}

TEST(Manifest, RefusesSizesBeyondItsFiles) {
  const std::string huge = "\"shape\":[4000000000,4000000000,4000000000]";
  EXPECT_TRUE(Contains(ErrorWith("\"shape\":[2,3]", huge), "too large"));
  EXPECT_TRUE(Contains(ErrorWith("\"end\":6", "\"end\":600000"), "does not fit"));
  EXPECT_TRUE(Contains(ErrorWith("\"end\":6", "\"end\":-6"), "'end'"));
  EXPECT_TRUE(Contains(ErrorWith("\"end\":6", "\"end\":6.5"), "'end'"));
  EXPECT_TRUE(Contains(ErrorWith("\"block_bytes\":1048576", "\"block_bytes\":0"), "block_bytes"));
  EXPECT_TRUE(
      Contains(ErrorWith("\"block_bytes\":1048576", "\"block_bytes\":8"), "3 blocks has 1"));
}

TEST(Manifest, RefusesFilesOutsideOfItsFolder) {
  EXPECT_TRUE(
      Contains(ErrorWith("{\"shard-1-of-2", "{\"../shard-1-of-2"), "not a plain file name"));
  EXPECT_TRUE(
      Contains(ErrorWith("\"file\":\"shard-1", "\"file\":\"shard-9"), "not one of its files"));
}

TEST(Manifest, RefusesOtherVersions) {
  EXPECT_EQ(ErrorWith("\"version\":1", "\"version\":4"),
            "its version is 4, but this program reads versions 1 to 3");
  EXPECT_TRUE(Contains(ErrorWith("\"step\":7", "\"step\":-7"), "'step'"));
  EXPECT_TRUE(Contains(ErrorWith("\"step\":7", "\"step\":7,\"step\":8"), "appears twice"));
  EXPECT_TRUE(Contains(ErrorWith("\"F32\"", "\"F31\""), "its dtype 'F31' is unknown"));
}

}  // namespace
}  // namespace penstock
