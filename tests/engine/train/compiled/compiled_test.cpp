// A run with compiled stages equals a run that captures them. Files that do not match are refused.
#include "train/compiled/compiled.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "config/run_schedule.h"
#include "runtime/executor/run.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

TrainConfig Config(const std::vector<std::string>& overrides = {}) {
  return ParseTrainConfig(R"(
model: {vocabulary: 256, dim: 8, layers: 4, heads: 2, sequence: 6}
pipeline: {ranks: 2, chunks: 2, schedule: interleaved, microbatches: 4}
batch: 2
steps: 3
)",
                          "test", overrides)
      .value();
}

// Returns the losses of a run's steps.
Result<std::vector<double>> LossesOf(TrainConfig config) {
  at::set_num_threads(1);
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, 2));
  std::vector<std::uint8_t> text(300);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
  const Sampler sampler(text, config.model.sequence, config.seed);
  PENSTOCK_TRY(const Pipeline pipeline,
               BuildPipeline(config, schedule, MakeBatchSource(sampler, config)));
  std::vector<double> losses;
  RunOptions options = {.steps = config.steps, .update = UpdateRuleOf(config.optimizer)};
  options.update.zero = pipeline.zero;
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t) {
    if (rank == last) losses.push_back(pipeline.last().StepLoss());
  };
  const std::vector<Stage*> stages = pipeline.pointers();
  PENSTOCK_TRY_STATUS(RunRanks(schedule, stages, options));
  return losses;
}

TEST(Compiled, RunsLikeCapturedStages) {
  const std::vector<std::vector<std::string>> ways = {{},
                                                      {"exact=false"},
                                                      {"precision=bf16"},
                                                      {"recompute.hold=least", "model.dropout=0.2"},
                                                      {"recompute.modules=mlp"},
                                                      {"model.name=gpt2", "model.dropout=0.2"},
                                                      {"parallel.data=2"},
                                                      {"parallel.data=2", "parallel.zero=2"},
                                                      {"parallel.data=2", "parallel.zero=3"}};
  for (const std::vector<std::string>& way : ways) {
    const TempFolder folder;
    const TrainConfig config = Config(way);
    const auto files = ValueOf(CompileStages(config, folder / "made/here"));
    EXPECT_EQ(files.size(), 4U);
    TrainConfig compiled = config;
    compiled.compiled = folder / "made/here";
    const auto losses = ValueOf(LossesOf(compiled));
    EXPECT_EQ(losses.size(), 3U);
    EXPECT_EQ(losses, *LossesOf(config));
  }
}

TEST(Compiled, RefusesFilesThatDoNotMatch) {
  const TempFolder folder;
  ASSERT_TRUE(CompileStages(Config(), folder / "made"));
  const auto error = [&](const std::vector<std::string>& overrides) {
    TrainConfig config = Config(overrides);
    config.compiled = folder / "made";
    const auto losses = LossesOf(config);
    const std::string message = losses ? "no error" : losses.error().line();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_TRUE(Contains(error({"model.dim=16"}), "compiled with model.dim 8, this run has 16"));
  EXPECT_TRUE(Contains(error({"model.rope_theta=500"}), "compiled with model.rope_theta 10000"));
  EXPECT_TRUE(Contains(error({"model.name=gpt2"}), "compiled with model.name \"llama\""));
  EXPECT_NE(error({"microbatches=8"}).find("pipeline.microbatches 4"), std::string::npos);
  EXPECT_TRUE(
      Contains(error({"parallel.data=2", "parallel.zero=3"}), "parallel.data 1, this run has 2"));
  EXPECT_NE(error({"exact=false"}).find("exact true, this run has false"), std::string::npos);

  const std::string file = CompiledFile(folder / "made", 1);
  const std::string whole = ReadFile(file).value();
  for (std::size_t length = 0; length < whole.size(); length += whole.size() / 23) {
    ASSERT_TRUE(WriteFileAtomically(file, whole.substr(0, length)));
    EXPECT_NE(error({}), "no error") << length;
  }
  std::filesystem::remove(file);
  EXPECT_TRUE(Contains(error({}),
                       "stage1.safetensors: No such file or directory: write it with 'penstock "
                       "compile CONFIG -o " +
                           (folder / "made") + "'"));
}

}  // namespace
}  // namespace penstock
