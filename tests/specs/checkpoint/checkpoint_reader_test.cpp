#include "checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/index.h"
#include "tests/results.h"
#include "tests/specs/checkpoint/small_checkpoint.h"

namespace penstock {
namespace {

// Large enough for several blocks.
constexpr std::uint64_t kElements = 3 * kBlockBytes / sizeof(float) + 100;
constexpr std::int64_t kSigned = static_cast<std::int64_t>(kElements);

// A shape of one to four dimensions.
std::vector<std::int64_t> DrawShape(std::mt19937& random) {
  std::vector<std::int64_t> shape(1 + random() % 4);
  for (std::int64_t& size : shape) size = 1 + static_cast<std::int64_t>(random() % 9);
  return shape;
}

// A layout, and how many elements it has.
struct Divided {
  Layout layout;
  std::int64_t elements = 0;
};

// Divides the tensor along one dimension, or each of its equal blocks, into parts of any sizes.
std::vector<Divided> DrawDivision(const std::vector<std::int64_t>& shape, std::mt19937& random) {
  const std::size_t dimension = random() % shape.size();
  std::int64_t blocks = 1 + static_cast<std::int64_t>(random()) % 3;
  if (shape[dimension] % blocks != 0) blocks = 1;
  const std::int64_t size = shape[dimension] / blocks;
  std::vector<Divided> parts;
  for (std::int64_t first = 0; first < size;) {
    const std::int64_t left = size - first;
    const std::int64_t count = 1 + static_cast<std::int64_t>(random()) % left;
    const Box box = {static_cast<std::int64_t>(dimension), first, count, blocks};
    parts.push_back({Layout(shape, box), Layout(shape).elements() / size * count});
    first += count;
  }
  return parts;
}

// The elements of the layout in the flattened tensor.
std::vector<float> ValuesOf(const Divided& part, const std::vector<float>& all) {
  std::vector<float> values(Index(part.elements));
  part.layout.ForRuns(part.elements, [&](std::int64_t at, std::int64_t own, std::int64_t count) {
    std::copy_n(all.begin() + at, count, values.begin() + own);
    return true;
  });
  return values;
}

class CheckpointReaderTest : public testing::Test {
 protected:
  // Two processes: "cut" has a piece on each, "left" and "right" are whole on one of them, "both"
  // is saved by both.
  void WriteTwoProcesses() {
    const std::vector<float> all = Ascending(kElements);
    const auto middle = all.begin() + 1000;
    WriteSmallCheckpoint(path_, {{{"cut", {kSigned}, 0, {all.begin(), middle}},
                                  {"left", {2, 3}, 0, Ascending(6)},
                                  {"both", {}, 0, {5}}},
                                 {{"cut", {kSigned}, 1000, {middle, all.end()}},
                                  {"right", {4}, 0, Ascending(4, 10)},
                                  {"both", {}, 0, {5}}}});
  }
  std::string Shard(int process) const { return path_ + "/" + ShardName(process, 2); }

  static Result<std::vector<float>> Values(CheckpointReader& reader, const std::string& name,
                                           std::uint64_t begin, std::uint64_t end) {
    std::vector<float> values(end - begin);
    const Layout part = Layout(reader.Find(name)->shape).From(static_cast<std::int64_t>(begin));
    PENSTOCK_TRY_STATUS(reader.Read(
        name, part, {reinterpret_cast<char*>(values.data()), values.size() * sizeof(float)}));
    return values;
  }
  std::string ErrorOfOpen() const { return LineOf(CheckpointReader::Open(path_)); }

  TempFolder folder_;
  const std::string path_ = folder_ / "step-7";
};

TEST_F(CheckpointReaderTest, ReadsAnyRangeOfAnyTensor) {
  WriteTwoProcesses();
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  EXPECT_EQ(reader.manifest().step, 7);
  EXPECT_EQ(reader.manifest().config, "name: small\n");
  EXPECT_EQ(Values(reader, "left", 0, 6).value(), Ascending(6));
  EXPECT_EQ(Values(reader, "right", 1, 3).value(), Ascending(2, 11));
  EXPECT_EQ(Values(reader, "both", 0, 1).value(), std::vector<float>{5});
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t begin = random() % (kElements + 1);
    const std::uint64_t end = begin + random() % (kElements - begin + 1);
    ASSERT_EQ(Values(reader, "cut", begin, end).value(),
              Ascending(end - begin, static_cast<float>(begin)))
        << begin << " " << end;
  }
  EXPECT_EQ(reader.Find("missing"), nullptr);
  EXPECT_TRUE(reader.Verify());
}

// Boxes of any dimension, each in shards of several processes, are read as any other boxes.
TEST_F(CheckpointReaderTest, ReadsAnyLayoutOfWhatWasSavedInAnyOther) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const std::vector<std::int64_t> shape = DrawShape(random);
    const std::vector<float> all = Ascending(Index(Layout(shape).elements()));
    std::vector<std::vector<SavedPart>> processes;
    for (const Divided& part : DrawDivision(shape, random)) {
      const std::vector<float> values = ValuesOf(part, all);
      const auto middle = 1 + static_cast<std::int64_t>(random() % values.size());
      const auto end_of_first = values.begin() + middle;
      processes.push_back({{"a", part.layout, {values.begin(), end_of_first}}});
      if (end_of_first == values.end()) continue;
      processes.push_back({{"a", part.layout.From(middle), {end_of_first, values.end()}}});
    }
    std::ranges::shuffle(processes, random);
    const std::string path = fmt::format("{}-{}", path_, trial);
    const Manifest written = WriteSmallCheckpoint(path, processes);
    CheckpointReader reader = CheckpointReader::Open(path).value();
    EXPECT_EQ(reader.manifest(), written);
    ASSERT_TRUE(reader.Verify());
    for (const Divided& part : DrawDivision(shape, random)) {
      std::vector<float> read(Index(part.elements));
      ASSERT_TRUE(reader.Read("a", part.layout,
                              {reinterpret_cast<char*>(read.data()), read.size() * sizeof(float)}));
      EXPECT_EQ(read, ValuesOf(part, all)) << trial;
    }
  }
}

TEST_F(CheckpointReaderTest, ReadsOnlyTheBlocksOfARange) {
  WriteTwoProcesses();
  const std::uint64_t begin = kBlockBytes / sizeof(float) + 1500;  // in the second block
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  ASSERT_TRUE(Values(reader, "cut", begin, begin + 10));
  EXPECT_EQ(reader.bytes_read(), kBlockBytes);
  // Process 0's shard is not read at all, and neither are other blocks.
  FlipBit(Shard(0), ReadFile(Shard(0))->size() / 2);
  FlipBit(Shard(1), ReadFile(Shard(1))->size() - 1);
  reader = CheckpointReader::Open(path_).value();
  EXPECT_TRUE(Values(reader, "cut", begin, begin + 10));
  EXPECT_FALSE(reader.Verify());
}

// As a resume with ZeRO-1 reads: the block is verified as a whole.
TEST_F(CheckpointReaderTest, VerifiesABlockThatItReadsInPart) {
  WriteTwoProcesses();
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  const std::uint64_t begin = kElements - 10;  // in the last block of the second piece
  ASSERT_TRUE(Values(reader, "cut", begin, begin + 1));
  std::string shard = ReadFile(Shard(1)).value();
  const float next = static_cast<float>(begin + 1);
  const std::size_t at =
      shard.rfind(std::string_view(reinterpret_cast<const char*>(&next), sizeof next));
  ASSERT_NE(at, std::string::npos);
  FlipBit(Shard(1), at);
  reader = CheckpointReader::Open(path_).value();
  EXPECT_TRUE(Refused(Values(reader, "cut", begin, begin + 1), "has a block with the checksum"));
}

TEST_F(CheckpointReaderTest, SavesElementsOfSeveralProcessesOnce) {
  WriteTwoProcesses();
  const Manifest manifest = CheckpointReader::Open(path_)->manifest();
  ASSERT_EQ(manifest.tensors.at("both").pieces.size(), 1U);
  EXPECT_EQ(manifest.tensors.at("both").pieces[0].file, ShardName(0, 2));
  ASSERT_EQ(manifest.tensors.at("cut").pieces.size(), 2U);
  EXPECT_EQ(manifest.tensors.at("cut").pieces[1].begin, 1000U);
}

TEST_F(CheckpointReaderTest, AFolderIsACheckpointOnlyWithItsManifest) {
  WriteTwoProcesses();
  std::filesystem::remove(path_ + "/manifest.json");
  EXPECT_TRUE(
      Refused(CheckpointReader::Open(path_), "is not a complete checkpoint", ErrorCode::kNotFound));
}

TEST_F(CheckpointReaderTest, RefusesMissingAndTruncatedShardsWhenItOpens) {
  WriteTwoProcesses();
  const std::string whole = ReadFile(Shard(1)).value();
  ASSERT_TRUE(WriteFileAtomically(Shard(1), whole.substr(0, whole.size() - 1)));
  EXPECT_NE(ErrorOfOpen().find(
                fmt::format("{} has {} bytes, not {}", Shard(1), whole.size() - 1, whole.size())),
            std::string::npos);
  std::filesystem::remove(Shard(1));
  EXPECT_NE(ErrorOfOpen().find(Shard(1)), std::string::npos);
}

// Any bit: in the manifest, in the header of a shard or in its tensors.
TEST_F(CheckpointReaderTest, FindsOneFlippedBit) {
  WriteTwoProcesses();
  std::mt19937 random(2);
  const std::string manifest = path_ + "/manifest.json";
  for (int i = 0; i < 60; ++i) {
    const std::string file = i % 3 == 0 ? manifest : Shard(i % 3 - 1);
    const std::string before = ReadFile(file).value();
    FlipBit(file,
            random() % (i % 2 == 0 ? std::min<std::size_t>(before.size(), 500) : before.size()));
    auto reader = CheckpointReader::Open(path_);
    EXPECT_TRUE(Refused(reader ? reader->Verify() : tl::unexpected(reader.error()), file,
                        ErrorCode::kInvalidArgument))
        << file;
    ASSERT_TRUE(WriteFileAtomically(file, before));
  }
  EXPECT_TRUE(CheckpointReader::Open(path_)->Verify());
}

TEST_F(CheckpointReaderTest, NamesTheTensorThatIsDamaged) {
  WriteTwoProcesses();
  FlipBit(Shard(1), ReadFile(Shard(1))->size() - 1);  // the last tensor of the file
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  const auto values = Values(reader, "right", 0, 4);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().line().find(Shard(1) + " is damaged: 'right' has a block with the "), 0U)
      << values.error().line();
}

TEST_F(CheckpointReaderTest, ATensorOfAnotherTypeOfTheSameSizeIsDamaged) {
  WriteTwoProcesses();
  std::string content = ReadFile(Shard(1)).value();
  for (std::size_t at = 0; (at = content.find("\"F32\"", at)) != content.npos; ++at) {
    content.replace(at, 5, "\"I32\"");
  }
  ASSERT_TRUE(WriteFileAtomically(Shard(1), content));
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  const auto values = Values(reader, "right", 0, 4);
  ASSERT_FALSE(values);
  EXPECT_TRUE(Contains(values.error().line(), "of I32, but the manifest has"))
      << values.error().line();
}

// The manifest is valid, but the shard belongs to another checkpoint.
TEST_F(CheckpointReaderTest, RefusesAShardThatTheManifestDoesNotDescribe) {
  WriteTwoProcesses();
  const std::string other = folder_ / "other";
  WriteSmallCheckpoint(other, {{{"cut", {kSigned}, 0, Ascending(1000)},
                                {"ltfe", {2, 3}, 0, Ascending(6)},
                                {"both", {}, 0, {5}}},
                               {{"cut", {kSigned}, 1000, Ascending(kElements - 1000)}}});
  std::filesystem::copy_file(other + "/" + ShardName(0, 2), Shard(0),
                             std::filesystem::copy_options::overwrite_existing);
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  EXPECT_TRUE(Refused(Values(reader, "left", 0, 6), "it does not contain 'left'"));
  EXPECT_FALSE(reader.Verify());
}

TEST_F(CheckpointReaderTest, RefusesAPathThatIsNoCheckpoint) {
  EXPECT_EQ(CheckpointReader::Open(folder_ / "none").error().code, ErrorCode::kNotFound);
  const auto text = CheckpointReader::Open(folder_.Write("text", "no such thing"));
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(CheckpointReader::Open(folder_.Write("empty", "")));
}

}  // namespace
}  // namespace penstock
