#include "checkpoint/merge.h"

#include <gtest/gtest.h>

#include "tests/results.h"
#include "tests/specs/checkpoint/small_checkpoint.h"

namespace penstock {
namespace {

class MergeWeightsTest : public testing::Test {
 protected:
  MergeWeightsTest() {
    WriteSmallCheckpoint(path_,
                         {{{"cut", {6}, 0, Ascending(4)},
                           {"none", {0, 3}, 0, {}},
                           {"optimizer.steps.cut", {}, 0, {9}}},
                          {{"cut", {6}, 4, Ascending(2, 4)}, {"a", {2, 2}, 0, {1, 2, 3, 4}}}});
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "step-7";
  const std::string merged_ = folder_ / "model.safetensors";
};

TEST_F(MergeWeightsTest, WritesWholeWeightsWithoutOptimizerState) {
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  const auto merged = MergeWeights(reader, merged_);
  ASSERT_TRUE(merged) << merged.error().line();
  EXPECT_EQ(merged->tensors, 3U);
  EXPECT_EQ(merged->bytes, ReadFile(merged_)->size());
  CheckpointReader file = CheckpointReader::Open(merged_).value();
  EXPECT_EQ(file.manifest().step, 7);
  EXPECT_EQ(file.manifest().seconds, 1.5);
  EXPECT_EQ(file.manifest().config, reader.manifest().config);
  ASSERT_EQ(file.manifest().tensors.size(), 3U);
  EXPECT_EQ(file.Find("none")->shape, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(file.Find("a")->shape, (std::vector<std::int64_t>{2, 2}));
  std::vector<float> values(6);
  const std::span<char> bytes(reinterpret_cast<char*>(values.data()), 24);
  ASSERT_TRUE(file.Read("cut", Layout(file.Find("cut")->shape), bytes));
  EXPECT_EQ(values, Ascending(6));
}

// The other readers of the format: 8 bytes, JSON, tensors without gaps.
TEST_F(MergeWeightsTest, WritesTheLayoutOfSafetensors) {
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  ASSERT_TRUE(MergeWeights(reader, merged_));
  const std::string file = ReadFile(merged_).value();
  const std::uint64_t length = HeaderLength(file, file.size()).value();
  const std::string_view header = std::string_view(file).substr(8, length);
  EXPECT_TRUE(Contains(header, R"("cut":{"data_offsets":[16,40],"dtype":"F32","shape":[6]})"));
  EXPECT_EQ(file.size(), 8 + length + 40);
}

TEST_F(MergeWeightsTest, LeavesNoFileOfADamagedCheckpoint) {
  const std::string shard = path_ + "/" + ShardName(0, 2);
  FlipBit(shard, ReadFile(shard)->size() - 10);
  CheckpointReader reader = CheckpointReader::Open(path_).value();
  EXPECT_TRUE(Refused(MergeWeights(reader, merged_), "is damaged"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  EXPECT_FALSE(MergeWeights(reader, folder_ / "no/folder"));
}

}  // namespace
}  // namespace penstock
