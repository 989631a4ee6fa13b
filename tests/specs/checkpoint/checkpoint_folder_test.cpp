#include "checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include "tests/specs/checkpoint/small_checkpoint.h"

namespace penstock {
namespace {

class CheckpointFolderTest : public testing::Test {
 protected:
  void Write(std::int64_t step) const {
    WriteSmallCheckpoint(CheckpointPath(own_, step), {{{"a", {2}, 0, {1, 2}}}});
  }
  // "STEP" of each checkpoint, "(STEP)" if it is unfinished.
  std::string Steps() const {
    std::string steps;
    const auto all = ListAllCheckpoints(own_).value();
    for (const StoredCheckpoint& each : all) {
      steps += fmt::format(fmt::runtime(each.complete ? "{} " : "({}) "), each.step);
    }
    return steps;
  }

  TempFolder folder_;
  const std::string run_ = folder_ / "run";
  const std::string own_ = CheckpointFolder(run_);
};

TEST_F(CheckpointFolderTest, ListsFoldersAndTheFilesOfEarlierVersions) {
  EXPECT_TRUE(ListCheckpoints(own_)->empty());
  Write(3);
  Write(20);
  folder_.Write("run/checkpoints/step-9/shard-1-of-2.safetensors", "of a killed process");
  for (const char* name : {"step-5.safetensors", "step-x", "step-", "step-7", "other"}) {
    folder_.Write(std::string("run/checkpoints/") + name, "a file");
  }
  EXPECT_EQ(Steps(), "20 (9) 5 3 ");
  EXPECT_EQ(ListCheckpoints(own_)->size(), 3U);
}

TEST_F(CheckpointFolderTest, RemovesOldAndUnfinishedOnes) {
  for (const std::int64_t step : {1, 2, 3, 4, 8}) Write(step);
  folder_.Write("run/checkpoints/step-2.safetensors", "an older format");
  folder_.Write("run/checkpoints/step-6/shard-1-of-1.safetensors.77.tmp", "of a killed process");
  folder_.Write("run/checkpoints/step-2/mine", "not ours");
  folder_.Write("run/checkpoints/step-4.safetensors.77.tmp", "of a killed process");
  folder_.Write("run/checkpoints/mine", "not ours");
  RemoveOldCheckpoints(own_, 4, 2);
  EXPECT_EQ(Steps(), "8 4 3 (2) ");
  EXPECT_EQ(ReadFile(own_ + "/step-2/mine").value(), "not ours");
  EXPECT_TRUE(std::filesystem::exists(own_ + "/mine"));
  EXPECT_FALSE(std::filesystem::exists(own_ + "/step-4.safetensors.77.tmp"));
  EXPECT_FALSE(std::filesystem::exists(own_ + "/step-2/manifest.json"));
}

TEST_F(CheckpointFolderTest, FindsTheCheckpointThatAPathMeans) {
  EXPECT_EQ(CheckpointAt(folder_ / "none").value(), folder_ / "none");
  Write(3);
  Write(6);
  const std::string six = CheckpointPath(own_, 6);
  for (const std::string& path : {run_, own_, six}) EXPECT_EQ(CheckpointAt(path).value(), six);
  const std::string model = folder_.Write("run/model.safetensors", "written last");
  std::filesystem::last_write_time(
      model, std::filesystem::last_write_time(six + "/manifest.json") + std::chrono::seconds(1));
  EXPECT_EQ(CheckpointAt(run_).value(), model);
  std::filesystem::remove(six + "/manifest.json");
  EXPECT_EQ(CheckpointAt(own_).value(), CheckpointPath(own_, 3));
  EXPECT_EQ(CheckpointAt(six).error().code, ErrorCode::kNotFound);
}

TEST_F(CheckpointFolderTest, SetsAsideLaterOnes) {
  for (const std::int64_t step : {3, 6}) Write(step);
  folder_.Write("run/checkpoints/step-9.safetensors", "an older format");
  folder_.Write("run/metrics.jsonl", "metrics");
  const SupersededFiles files{{"none", "model.safetensors"}, {"none", "metrics.jsonl"}};
  EXPECT_EQ(SetAside(run_, 9, files).value(), "");
  EXPECT_EQ(SetAside(run_, 3, files).value(), run_ + "/superseded-1");
  EXPECT_EQ(Steps(), "3 ");
  const std::string aside = CheckpointFolder(run_ + "/superseded-1");
  EXPECT_TRUE(IsCheckpointFolder(aside + "/step-6"));
  EXPECT_TRUE(std::filesystem::exists(aside + "/step-9.safetensors"));
  EXPECT_EQ(ReadFile(run_ + "/superseded-1/metrics.jsonl").value(), "metrics");
  EXPECT_EQ(ReadFile(run_ + "/metrics.jsonl").value(), "metrics");
  // Files are a reason to create the folder, too, but copies are not.
  folder_.Write("run/model.safetensors", "weights");
  EXPECT_EQ(SetAside(run_, 9, files).value(), run_ + "/superseded-2");
  EXPECT_EQ(ReadFile(run_ + "/superseded-2/model.safetensors").value(), "weights");
  EXPECT_EQ(SetAside(run_, 9, files).value(), "");
}

// The link to the best checkpoint stays with that checkpoint.
TEST_F(CheckpointFolderTest, SettingAsideKeepsTheLinkToTheBest) {
  for (const std::int64_t step : {2, 4, 6}) Write(step);
  ASSERT_TRUE(LinkBest(own_, 2));
  const std::string first = SetAside(run_, 4, {}).value();
  EXPECT_EQ(BestStep(own_), 2);
  EXPECT_EQ(BestStep(CheckpointFolder(first)), -1);
  ASSERT_TRUE(LinkBest(own_, 4));
  const std::string second = SetAside(run_, 2, {}).value();
  EXPECT_EQ(BestStep(own_), -1);
  EXPECT_EQ(BestStep(CheckpointFolder(second)), 4);
}

// Whatever a user calls superseded-N, the next number is free.
TEST_F(CheckpointFolderTest, SettingAsideFindsAFreeName) {
  Write(2);
  folder_.Write("run/superseded-1", "a user's file");
  std::filesystem::create_symlink("nowhere", run_ + "/superseded-2");
  std::filesystem::create_directory(run_ + "/superseded-3");
  EXPECT_EQ(SetAside(run_, 0, {}).value(), run_ + "/superseded-4");
  EXPECT_EQ(ReadFile(run_ + "/superseded-1").value(), "a user's file");
}

}  // namespace
}  // namespace penstock
