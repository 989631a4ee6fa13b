#include "train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "tests/train/temp_folder.h"

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
  const auto checkpoint = ReadCheckpoint(folder.path());  // a run's folder
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
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
  const Checkpoint checkpoint = ReadCheckpoint(path).value();
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
  EXPECT_EQ(ReadCheckpoint(folder / "missing").error().code, ErrorCode::kNotFound);
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
    const auto read = ReadCheckpoint(folder.Write("broken", content));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument) << read.error().message;
  }
}

TEST(Safetensors, RefusesARepeatedName) {
  const TempFolder folder;
  const auto read = [&](const std::string& header) {
    const std::uint64_t length = header.size();
    const std::string content =
        std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(4, '\0');
    return ReadSafetensors(folder.Write("file", content));
  };
  const std::string entry = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  EXPECT_TRUE(read(R"({"a": )" + entry + R"(, "b": )" + entry + "}"));
  const auto twice = read(R"({"a": )" + entry + R"(, "b": )" + entry + R"(, "a": )" + entry + "}");
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("the name 'a' appears twice in its header"),
            std::string::npos)
      << twice.error().message;
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
    const auto read = ReadCheckpoint(folder.Write("flipped", flipped));
    ASSERT_FALSE(read) << "byte " << at;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument) << read.error().message;
  }
}

}  // namespace
}  // namespace penstock
