#include "train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "tests/engine/runtime/processes/local_processes.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/engine/train/checkpoint/all_tensors.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "tests/specs/checkpoint/small_checkpoint.h"
#include "train/checkpoint/write_shards.h"

namespace penstock {
namespace {

TrainConfig StoredConfig() {
  TrainConfig config;
  config.model.dim = 8;
  config.model.layers = 3;
  config.model.options["heads"] = "2";
  config.model.sequence = 6;
  return config;
}

LanguageModel Build(std::uint64_t seed, int stages) {
  ModelConfig config = StoredConfig().model;
  config.seed = seed;
  return LanguageModel::Build(config, stages).value();
}

TEST(Checkpoint, AModelWithOtherStagesReadsIt) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  const LanguageModel saved = Build(1, 3);
  ASSERT_TRUE(SaveCheckpoint(saved, {42, StoredConfig(), 0.1}, path));

  LanguageModel loaded = Build(2, 2);
  const at::Tensor tokens = at::arange(6, at::kLong).view({1, 6});
  EXPECT_FALSE(at::equal(loaded.Logits(tokens), saved.Logits(tokens)));
  auto checkpoint = OpenCheckpoint(folder.path());  // a run's folder
  ASSERT_TRUE(checkpoint) << checkpoint.error().line();
  ASSERT_TRUE(SetWeights(*checkpoint, loaded));
  EXPECT_TRUE(at::equal(loaded.Logits(tokens), saved.Logits(tokens)));
  EXPECT_EQ(checkpoint->info.step, 42);
  EXPECT_EQ(checkpoint->info.seconds, 0.1);
  EXPECT_EQ(ToYaml(checkpoint->info.config), ToYaml(StoredConfig()));
}

TEST(Checkpoint, RefusesAModelOfOtherSizesAndDoesNotChangeIt) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(SaveCheckpoint(Build(1, 1), {1, StoredConfig()}, path));
  Checkpoint checkpoint = OpenCheckpoint(path).value();
  const auto refused = [&](auto change) {
    ModelConfig config = StoredConfig().model;
    change(config);
    LanguageModel model = LanguageModel::Build(config).value();
    const at::Tensor before = model.Parameters().front().second.clone();
    const Status status = SetWeights(checkpoint, model);
    EXPECT_TRUE(at::equal(before, model.Parameters().front().second));
    return !status && status.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ModelConfig& config) { config.layers = 4; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.layers = 2; }));
  EXPECT_TRUE(refused([](ModelConfig& config) { config.dim = 16; }));
}

TEST(Checkpoint, RefusesBrokenFiles) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(SaveCheckpoint(Build(1, 1), {1, StoredConfig()}, path));
  const std::string whole = ReadFile(path).value();
  EXPECT_EQ(OpenCheckpoint(folder / "missing").error().code, ErrorCode::kNotFound);
  std::vector<std::string> broken = {"", "short", std::string(8, '\xFF'), std::string(16, '\0')};
  for (const std::size_t length : {std::size_t{20}, whole.size() / 2, whole.size() - 1}) {
    broken.push_back(whole.substr(0, length));
  }
  std::string other = whole;
  other.replace(other.find("\"F32\""), 5, "\"F64\"");
  broken.push_back(other);
  other = whole;
  other.replace(other.find("\"shape\""), 7, "\"shapf\"");
  broken.push_back(other);
  for (const std::string& content : broken) {
    EXPECT_TRUE(
        Refused(OpenCheckpoint(folder.Write("broken", content)), "", ErrorCode::kInvalidArgument));
  }
}

TEST(Safetensors, RefusesARepeatedName) {
  const TempFolder folder;
  const auto read = [&](const std::string& header) {
    const std::uint64_t length = header.size();
    const std::string content =
        std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(8, '\0');
    return ReadSafetensors(folder.Write("file", content));
  };
  const std::string entry = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  const std::string next = R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})";
  EXPECT_TRUE(read(R"({"a": )" + entry + R"(, "b": )" + next + "}"));
  EXPECT_TRUE(Refused(read(R"({"a": )" + entry + R"(, "b": )" + next + R"(, "a": )" + entry + "}"),
                      "the name 'a' appears twice"));
  EXPECT_FALSE(read(R"({"__metadata__": {"step": "1", "step": "2"}, "a": )" + entry + "}"));
}

// The bit may be in a length, a name, a number, the checksum itself, white space or a weight.
TEST(Checkpoint, RefusesAFileWithOneFlippedBit) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(SaveCheckpoint(Build(1, 1), {1, StoredConfig()}, path));
  const std::string whole = ReadFile(path).value();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string flipped = whole;
    // Half of them in the header.
    const std::size_t at = random() % (i % 2 == 0 ? 4000 : whole.size());
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    EXPECT_TRUE(
        Refused(OpenCheckpoint(folder.Write("flipped", flipped)), "", ErrorCode::kInvalidArgument))
        << "byte " << at;
  }
}

// Three processes: "cut" has elements of each and "columns" has columns, "both" is on two of them.
class WriteShardsTest : public testing::Test {
 protected:
  NamedState StateOf(int process) const {
    const std::int64_t begin = 4 * process;
    NamedState state = {
        {"cut", cut_.view({-1}).slice(0, begin, begin + 4), Layout({3, 4}).From(begin)},
        {"columns", columns_.narrow(1, 2 * process, 2), Layout({2, 6}, {1, 2 * process, 2})},
        {fmt::format("own{}", process), at::full({2, 2}, process)}};
    if (process != 1) state.emplace_back("both", both_.t());  // not contiguous
    return state;
  }
  // Returns the error of each process.
  std::vector<std::string> Write(const std::string& path) const {
    const auto groups = MakeLocalProcesses(3);
    std::vector<std::string> errors(3);
    OnEachProcess(groups, [&](ProcessGroup& group) {
      Collectives processes(&group);
      const Status status =
          WriteShards(processes, path, {7, StoredConfig(), 2.5}, StateOf(group.process()));
      if (!status) errors[group.process()] = status.error().line();
    });
    return errors;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "step-7";
  const at::Tensor cut_ = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor columns_ = at::rand({2, 6});
  const at::Tensor both_ = at::rand({2, 5});
};

TEST_F(WriteShardsTest, EveryProcessWritesItsElements) {
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  const std::map<std::string, at::Tensor> all = AllTensors(path_);
  EXPECT_EQ(all.size(), 6U);
  EXPECT_TRUE(at::equal(all.at("cut"), cut_));
  EXPECT_TRUE(at::equal(all.at("columns"), columns_));
  EXPECT_TRUE(at::equal(all.at("both"), both_.t()));
  EXPECT_TRUE(at::equal(all.at("own2"), at::full({2, 2}, 2)));
  const Checkpoint checkpoint = OpenCheckpoint(path_).value();
  EXPECT_EQ(checkpoint.info.step, 7);
  EXPECT_EQ(checkpoint.info.seconds, 2.5);
  EXPECT_EQ(ToYaml(checkpoint.info.config), ToYaml(StoredConfig()));
  // Each shard is a safetensors file of its own.
  const auto shard = ValueOf(ReadSafetensors(path_ + "/shard-3-of-3.safetensors"));
  EXPECT_TRUE(shard.verified);
  EXPECT_EQ(shard.tensors.size(), 3U);
  EXPECT_TRUE(at::equal(shard.tensors.at("cut[8:12]"), at::arange(8, 12, at::kFloat)));
}

TEST_F(WriteShardsTest, RestoresRangesAndReadsNothingElse) {
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  // Damages all of the first process's shard.
  const std::string first = path_ + "/shard-1-of-3.safetensors";
  ASSERT_TRUE(WriteFileAtomically(first, std::string(ReadFile(first)->size(), 'x')));
  Checkpoint checkpoint = OpenCheckpoint(path_).value();
  at::Tensor end = at::empty({2, 7}).slice(1, 0, 4);  // not contiguous
  ASSERT_TRUE(Restore(checkpoint, {{"cut", end, Layout({3, 4}).From(4)}}));
  EXPECT_TRUE(at::equal(end, cut_.slice(0, 1)));
  EXPECT_EQ(checkpoint.reader.bytes_read(), 8 * sizeof(float));
  EXPECT_FALSE(Restore(checkpoint, {{"cut", at::empty({12}), Layout({3, 4})}}));
}

// As a run that resumes with another division of a matrix.
TEST_F(WriteShardsTest, RestoresBoxesOfOneDimensionFromBoxesOfAnother) {
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  Checkpoint checkpoint = OpenCheckpoint(path_).value();
  const at::Tensor row = at::empty({6}), middle = at::empty({2, 3});
  ASSERT_TRUE(Restore(checkpoint, {{"columns", row, Layout({2, 6}, {0, 1, 1})},
                                   {"columns", middle, Layout({2, 6}, {1, 1, 3})}}));
  EXPECT_TRUE(at::equal(row, columns_[1]));
  EXPECT_TRUE(at::equal(middle, columns_.narrow(1, 1, 3)));
}

TEST_F(WriteShardsTest, ReplacesWhatAKilledProcessLeft) {
  folder_.Write("step-7/shard-1-of-1.safetensors", "of a killed process");
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/shard-1-of-1.safetensors"));
  EXPECT_TRUE(OpenCheckpoint(path_)->reader.Verify());
}

TEST_F(WriteShardsTest, DoesNotReplaceACheckpoint) {
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  const std::string before = ReadFile(path_ + "/manifest.json").value();
  cut_.zero_();
  EXPECT_EQ(Write(path_), std::vector<std::string>(3));
  EXPECT_EQ(ReadFile(path_ + "/manifest.json").value(), before);
  EXPECT_TRUE(OpenCheckpoint(path_)->reader.Verify());
}

TEST_F(WriteShardsTest, AFailureOnOneProcessIsThatOfAllAndLeavesNothing) {
  const std::vector<std::string> errors = Write(folder_ / "no/step-7");
  EXPECT_NE(errors[0].find("cannot create the folder"), std::string::npos) << errors[0];
  EXPECT_EQ(errors, std::vector<std::string>(3, errors[0]));
  // The name of the second process's shard is taken by a folder that is not ours.
  folder_.Write("step-7/shard-2-of-3.safetensors/mine", "not ours");
  const std::vector<std::string> taken = Write(path_);
  EXPECT_NE(taken[0].find("shard-2-of-3.safetensors"), std::string::npos) << taken[0];
  EXPECT_EQ(taken, std::vector<std::string>(3, taken[0]));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/shard-1-of-3.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/manifest.json"));
}

}  // namespace
}  // namespace penstock
