#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "temp_folder.h"

namespace penstock {
namespace {

TrainConfig SmallConfig() {
  TrainConfig config;
  config.model.dim = 8;
  config.model.layers = 3;
  config.model.heads = 2;
  config.model.sequence = 6;
  return config;
}

LanguageModel Build(std::uint64_t seed, int stages) {
  ModelConfig config = SmallConfig().model;
  config.seed = seed;
  return LanguageModel::Build(config, stages).value();
}

TEST(Checkpoint, AnotherCutReadsTheSameModel) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  const LanguageModel saved = Build(1, 3);
  ASSERT_TRUE(SaveCheckpoint(saved, {42, SmallConfig()}, path));

  LanguageModel loaded = Build(2, 2);
  const at::Tensor tokens = at::arange(6, at::kLong).view({1, 6});
  EXPECT_FALSE(at::equal(loaded.Logits(tokens), saved.Logits(tokens)));
  ASSERT_TRUE(LoadCheckpoint(folder.path(), loaded));  // the run's folder will do
  EXPECT_TRUE(at::equal(loaded.Logits(tokens), saved.Logits(tokens)));

  const auto info = ReadCheckpointInfo(path);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->step, 42);
  EXPECT_EQ(ToYaml(info->config), ToYaml(SmallConfig()));
}

TEST(Checkpoint, RefusesAModelOfOtherSizesAndLeavesItAlone) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(SaveCheckpoint(Build(1, 1), {1, SmallConfig()}, path));
  const auto refused = [&](auto change) {
    ModelConfig config = SmallConfig().model;
    change(config);
    LanguageModel model = LanguageModel::Build(config).value();
    const at::Tensor before = model.Parameters().front().second.clone();
    const Status status = LoadCheckpoint(path, model);
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
  ASSERT_TRUE(SaveCheckpoint(Build(1, 1), {1, SmallConfig()}, path));
  const std::string whole = ReadFile(path).value();
  LanguageModel model = Build(1, 1);
  EXPECT_EQ(LoadCheckpoint(folder / "missing", model).error().code, ErrorCode::kNotFound);
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
    const Status status = LoadCheckpoint(folder.Write("broken", content), model);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().message;
  }
}

}  // namespace
}  // namespace penstock
