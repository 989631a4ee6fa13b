// Ranks that divide the matrices train the same model as ranks that have all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/train/documents.h"
#include "tests/engine/train/run/divided_run.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"
#include "train/run/run_checks.h"

namespace penstock {
namespace {

// With an odd number of tokens, which ranks cannot divide, and dropout; or with an even one
// without.
TrainConfig DividedConfig(const std::string& model, bool divides_tokens = false) {
  TrainConfig config = FiveSteps(model);
  if (divides_tokens) {
    config.model.sequence = 8;
  } else {
    config.model.options["dropout"] = "0.1";
  }
  return config;
}

class TensorParallel : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  static TrainConfig TestedConfig() {
    const auto& [model, divides_tokens] = GetParam();
    return DividedConfig(model, divides_tokens);
  }
};

TEST_P(TensorParallel, StartsFromTheSameWeights) {
  TrainConfig config = TestedConfig();
  config.steps = 1;
  config.optimizer.lr = 0;
  config.optimizer.balance_rate = 0;
  TrainedModel expected = TrainWith(config);
  for (const int tensor : {2, 4}) {
    config.parallel.tensor = tensor;
    const TrainedModel divided = TrainWith(config);
    expected.losses = divided.losses;  // sums are rounded differently
    ExpectEqual(expected, divided);
  }
}

TEST_P(TensorParallel, TrainsTheSameModel) {
  TrainConfig config = TestedConfig();
  const TrainedModel expected = TrainWith(config);
  for (const int tensor : {2, 4}) {  // four ranks share two key and value heads
    SCOPED_TRACE(tensor);
    config.parallel.tensor = tensor;
    ExpectEqualToRounding(expected, TrainWith(config));
  }
}

TEST_P(TensorParallel, TrainsTheSameModelWithEverySchedule) {
  const TrainedModel expected = TrainWith(TestedConfig());
  for (const char* const schedule :
       {"1f1b", "zb-h1", "dualpipe", "zbv", "interleaved", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    TrainConfig config = TestedConfig();
    RunOnTwoRanks(config, schedule);
    config.parallel.tensor = 2;
    const TrainedModel divided = TrainWith(config);
    ExpectEqualToRounding(expected, divided);
    ExpectEqual(divided, TrainWith(config));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel,
                         testing::Combine(testing::Values("llama", "qwen3", "gpt2", "mixtral",
                                                          "qwen3_moe", "deepseek_v3"),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_tokens" : "");
                         });

TEST(TensorParallelRun, CombinesWithWhatReplicasShard) {
  for (int zero = 0; zero <= 3; ++zero) {
    SCOPED_TRACE(zero);
    TrainConfig config = DividedConfig("qwen3", /*divides_tokens=*/true);
    config.parallel.data = 2;
    const TrainedModel expected = TrainWith(config);
    config.parallel.zero = zero;
    config.parallel.tensor = 4;
    config.pipeline.ranks = config.pipeline.stages = 2;
    ExpectEqualToRounding(expected, TrainWith(config));
  }
}

TEST(TensorParallelRun, CombinesWithRecomputePostValidationAndBf16) {
  TrainConfig config = DividedConfig("qwen3", /*divides_tokens=*/true);
  const TrainedModel expected = TrainWith(config);
  config.parallel.tensor = 2;
  ExpectSameWithRecomputeAndInBf16(expected, config);
}

// Ranks divide experts, which replicas divide, too, or have whole ones.
TEST(TensorParallelRun, DividesExperts) {
  for (const auto& [model, balance] : {std::pair("mixtral", "loss"), {"deepseek_v3", "bias"}}) {
    TrainConfig config = DividedConfig(model, /*divides_tokens=*/true);
    config.model.options["balance"] = balance;
    config.model.options["balance_loss"] = "1";
    config.model.options["shared_experts"] = "1";
    config.pipeline.schedule = "dualpipev";
    config.pipeline.ranks = 2;
    config.pipeline.stages = 4;
    config.pipeline.microbatches = 8;
    config.parallel.data = 2;
    const TrainedModel expected = TrainWith(config);
    config.parallel.tensor = 2;
    for (const auto& [expert, expert_tensor] : {std::pair(1, 1), {2, 1}, {2, 2}}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", model, balance, expert, expert_tensor));
      config.parallel.expert = expert;
      config.parallel.expert_tensor = expert_tensor;
      const TrainedModel divided = TrainWith(config);
      ExpectEqualToRounding(expected, divided);
      ExpectEqual(divided, TrainWith(config));
    }
  }
}

TEST(TensorParallelRun, UpdatesWholeMatricesByMuon) {
  for (const char* const model : {"gpt2", "mixtral"}) {
    TrainConfig config = DividedConfig(model, /*divides_tokens=*/true);
    config.optimizer.name = "muon";
    config.parallel.data = 2;
    const TrainedModel expected = TrainWith(config);
    for (const int zero : {0, 1, 3}) {
      SCOPED_TRACE(fmt::format("{} {}", model, zero));
      config.parallel.tensor = 4;
      config.parallel.zero = zero;
      ExpectEqualToRounding(expected, TrainWith(config));
    }
  }
}

// W gathers again what F has gathered. No bit differs.
TEST(TensorParallelRun, GathersAgainWithEverySchedule) {
  for (const char* const schedule : {"1f1b", "zb-h1", "zbv", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    TrainConfig config = DividedConfig("qwen3", /*divides_tokens=*/true);
    RunOnTwoRanks(config, schedule);
    config.parallel.tensor = 2;
    CollectivesOfStage counts[2];
    const auto train = [&](bool again) {
      config.parallel.gather_again = again;
      return TrainWith(config, [&](const Schedule&, const Pipeline& pipeline) {
        counts[again] = pipeline.last().CountedCollectives();
      });
    };
    const TrainedModel saves = train(false), again = train(true);
    ExpectEqual(saves, again);
    for (std::size_t stage = 0; stage < saves.saved.size(); ++stage) {
      EXPECT_LT(again.saved[stage], saves.saved[stage]) << stage;
    }
    EXPECT_EQ(counts[0].forward, counts[1].forward);
    EXPECT_EQ(counts[0].backward_input, counts[1].backward_input);
    EXPECT_TRUE(counts[0].backward_weight.empty());
    // What F gathers for the two linears of each layer and for the head; it gathers the largest
    // logits, too.
    ASSERT_EQ(counts[1].backward_weight.size(), 1);
    EXPECT_EQ(counts[1].backward_weight[0].calls, counts[1].forward[0].calls - 1);
  }
}

TEST(TensorParallelRun, RefusesToGatherAgainOnOneRank) {
  TrainConfig config = DividedConfig("llama");
  config.parallel.gather_again = true;
  EXPECT_EQ(LineOf(CheckRun(config)),
            "parallel.gather_again has no effect without parallel.tensor, or parallel.context with "
            "all-gather: set one of them, because no other rank gathers");
}

using TensorParallelFiles = DividedRun;

TEST_F(TensorParallelFiles, TrainsTheSameModelOnOtherSamples) {
  text_ = folder_.Write("fortunes", DistinctDocuments(600, 90));
  const std::vector<std::vector<std::string>> cases = {
      {"document_mask=true"},
      {"model.name=gpt2", "document_mask=true"},
      {"data.lengths=16,64,32,8", "sequence=64", "batch=2"},
      {"schedule=seq1f1b", "slices=2"},
      {"model.name=gpt2", "schedule=seq1f1b", "slices=2"},
      {"tied=true", "validation.freq=2"},
      {"model.name=deepseek_v3", "predictor=1"},
      {"precision=bf16", "recompute.hold=least"}};
  ExpectSameOnTwoRanks(cases, "parallel.tensor");
}

TEST_F(TensorParallelFiles, StartsFromOtherPrograms) {
  for (const std::string model : {"llama", "gpt2"}) {
    SCOPED_TRACE(model);
    const std::vector<std::string> options = {"model.name=" + model, "ranks=2", "stages=2",
                                              "dropout=0"};
    Train(model, options);
    const std::string folder = folder_ / ("weights-" + model);
    ASSERT_TRUE(ExportHuggingFace(Folder(model), folder));
    const auto from = [&](int tensor) {
      return Train(fmt::format("{}-{}", model, tensor),
                   With(options, {"weights=" + folder, fmt::format("parallel.tensor={}", tensor)}));
    };
    const std::vector<StepMetric> expected = from(1), divided = from(2);
    EXPECT_NEAR(divided.front().loss, expected.front().loss, 1e-5);
    EXPECT_NEAR(divided.back().loss, expected.back().loss, 1e-3);
  }
}

TEST_F(TensorParallelFiles, RunsCompiledStages) {
  const std::vector<std::string> options = {"ranks=2", "stages=2", "parallel.tensor=2"};
  Train("captured", options);
  const std::string folder = folder_ / "stages";
  EXPECT_EQ(ValueOf(CompileStages(Config(options), folder)).size(), 4);
  Train("compiled", With(options, {"compiled=" + folder}));
  ExpectSameTensors(AllTensors(Folder("captured") + "/model.safetensors"),
                    AllTensors(Folder("compiled") + "/model.safetensors"));
}

// Threads divide the matrices of the ranks of each process.
TEST_F(TensorParallelFiles, RunsOnSeveralProcesses) {
  ExpectProcessesAndInterruptionsChangeNoBits(
      {"ranks=2", "stages=2", "schedule=1f1b", "clip=0.5", "parallel.tensor=2"});
  EXPECT_TRUE(Contains(Log(), "mesh: 4 ranks = 1 data x 2 pipeline x 2 tensor, 2 processes"));
  EXPECT_TRUE(Contains(Log(), "rank 3: data 0, pipeline 1, tensor 1, process 1"));
}

// Also with gpt2, whose joint projection has a part of the queries, keys and values each.
TEST_F(TensorParallelFiles, ResumeWithAnyNumberOfRanks) {
  for (const std::string model : {"llama", "gpt2"}) {
    const std::vector<std::string> common = {
        "model.name=" + model, "heads=4",   "ranks=2", "stages=2",
        "schedule=1f1b",       "dropout=0", "layers=2"};
    const auto with = [&](std::vector<std::string> more) { return With(common, more); };
    const std::string one = model + "1", two = model + "2";
    const std::vector<StepMetric> expected = Train(one, common);
    const std::vector<StepMetric> divided = Train(two, with({"parallel.tensor=2"}));
    const std::string resumed = "resumed-" + model;
    const std::vector<StepMetric> joined = Train(resumed + "1", with({"resume=" + At(two, 2)}));
    const std::vector<StepMetric> cut =
        Train(resumed + "2", with({"resume=" + At(one, 2), "parallel.tensor=4"}));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (const auto& metrics : {divided, joined, cut}) {
        EXPECT_NEAR(metrics[i].loss, expected[i].loss, 1e-4 * expected[i].loss) << i;
        EXPECT_NEAR(metrics[i].grad_norm, expected[i].grad_norm, 1e-3 * expected[i].grad_norm) << i;
      }
    }
    // The state does not depend on who saves it.
    const std::string copied = "copied-" + model;
    Train(copied, with({"resume=" + At(two, 5)}));
    ExpectSameTensors(AllTensors(At(copied, 5)), AllTensors(At(two, 5)));
    Train(copied + "4", with({"resume=" + At(two, 5), "parallel.tensor=4"}));
    ExpectSameTensors(AllTensors(At(copied + "4", 5)), AllTensors(At(two, 5)));
    ExpectSameTensors(AllTensors(Folder(copied) + "/model.safetensors"),
                      AllTensors(Folder(two) + "/model.safetensors"));
  }
}

}  // namespace
}  // namespace penstock
