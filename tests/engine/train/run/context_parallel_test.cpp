// Ranks that divide the tokens of samples train the same model as ranks that have all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/train/documents.h"
#include "tests/engine/train/run/divided_run.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"

namespace penstock {
namespace {

// With samples that 2 * C blocks divide, or whose last block has padding.
TrainConfig ContextConfig(const std::string& model, bool pads = false) {
  TrainConfig config = FiveSteps(model);
  config.model.sequence = pads ? 13 : 16;
  const bool has_experts = config.model.options.contains("experts");
  if (has_experts) config.model.options["balance"] = pads ? "none" : "loss";
  return config;
}

class ContextParallel : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  static TrainConfig TestedConfig() {
    const auto& [model, pads] = GetParam();
    return ContextConfig(model, pads);
  }
};

TEST_P(ContextParallel, TrainsTheSameModel) {
  TrainConfig config = TestedConfig();
  const TrainedModel expected = TrainWith(config);
  for (const std::string exchange : {"all-gather", "ulysses", "ring"}) {
    for (const auto& [context, tensor] : {std::pair(2, 1), {4, 1}, {2, 2}}) {
      SCOPED_TRACE(fmt::format("{}: {} context, {} tensor", exchange, context, tensor));
      config.parallel.context_exchange = exchange;
      config.parallel.context = context;
      config.parallel.tensor = tensor;
      ExpectEqualToRounding(expected, TrainWith(config));
    }
  }
}

TEST_P(ContextParallel, TrainsTheSameModelWithEverySchedule) {
  const TrainedModel expected = TrainWith(TestedConfig());
  for (const auto& [schedule, exchange] : {std::pair("1f1b", "all-gather"),
                                           {"zb-h1", "ulysses"},
                                           {"dualpipe", "ring"},
                                           {"zbv", "all-gather"},
                                           {"interleaved", "ring"},
                                           {"dualpipev", "ulysses"}}) {
    SCOPED_TRACE(schedule);
    TrainConfig config = TestedConfig();
    RunOnTwoRanks(config, schedule);
    config.parallel.context = 2;
    config.parallel.context_exchange = exchange;
    const TrainedModel divided = TrainWith(config);
    ExpectEqualToRounding(expected, divided);
    ExpectEqual(divided, TrainWith(config));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextParallel,
                         testing::Combine(testing::Values("llama", "qwen3", "gpt2", "mixtral",
                                                          "qwen3_moe", "deepseek_v3"),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_padded" : "");
                         });

TEST(ContextParallelRun, BalancesExpertsByBiases) {
  TrainConfig config = ContextConfig("deepseek_v3");
  config.model.options["balance"] = "bias";
  const TrainedModel expected = TrainWith(config);
  config.parallel.context = 2;
  ExpectEqualToRounding(expected, TrainWith(config));
}

TEST(ContextParallelRun, CombinesWithWhatReplicasShard) {
  for (int zero = 0; zero <= 3; ++zero) {
    SCOPED_TRACE(zero);
    TrainConfig config = ContextConfig("qwen3");
    config.parallel.data = 2;
    config.model.options["tied"] = "true";
    const TrainedModel expected = TrainWith(config);
    config.parallel.zero = zero;
    config.parallel.context = 2;
    config.parallel.tensor = 2;
    config.pipeline.ranks = config.pipeline.stages = 2;
    ExpectEqualToRounding(expected, TrainWith(config));
  }
}

TEST(ContextParallelRun, CombinesWithRecomputePostValidationAndBf16) {
  TrainConfig config = ContextConfig("qwen3");
  const TrainedModel expected = TrainWith(config);
  config.parallel.context = 2;
  ExpectSameWithRecomputeAndInBf16(expected, config);
}

// Each rank sends the rows of its own tokens to the experts of other replicas.
TEST(ContextParallelRun, CombinesWithReplicasThatDivideExperts) {
  for (const auto& [model, schedule, exchange, tensor, zero] :
       {std::tuple("mixtral", "1f1b", "all-gather", 1, 0),
        {"qwen3_moe", "zb-h1", "ring", 1, 2},
        {"deepseek_v3", "dualpipe", "ulysses", 2, 1},
        {"deepseek_v3", "zb-h1", "all-gather", 2, 3}}) {
    SCOPED_TRACE(
        fmt::format("{} {} {} tensor={} zero={}", model, schedule, exchange, tensor, zero));
    TrainConfig config = ContextConfig(model);
    config.pipeline.schedule = schedule;
    config.pipeline.ranks = config.pipeline.stages = 2;
    config.pipeline.microbatches = 8;
    config.parallel.data = 2;
    const TrainedModel expected = TrainWith(config);
    config.parallel.context_exchange = exchange;
    config.parallel.context = 2;
    config.parallel.tensor = tensor;
    config.parallel.zero = zero;
    const TrainedModel whole = TrainWith(config);
    config.parallel.expert = 2;
    const TrainedModel divided = TrainWith(config);
    EXPECT_EQ(whole.losses.front(), divided.losses.front());
    ExpectEqualToRounding(expected, divided);
    ExpectEqual(divided, TrainWith(config));
  }
}

// I gathers the keys and values again that F has gathered. No bit differs.
TEST(ContextParallelRun, GathersAgain) {
  for (const auto& [model, schedule, tensor, hold] : {std::tuple("llama", "zb-h1", 1, "all"),
                                                      {"gpt2", "1f1b", 1, "all"},
                                                      {"deepseek_v3", "zbv", 2, "all"},
                                                      {"qwen3", "dualpipev", 2, "60KiB"},
                                                      {"llama", "1f1b", 2, "least"}}) {
    SCOPED_TRACE(fmt::format("{} {} tensor={} hold={}", model, schedule, tensor, hold));
    TrainConfig config = ContextConfig(model);
    config.model.sequence = 64;
    config.steps = 2;
    RunOnTwoRanks(config, schedule);
    config.pipeline.microbatches = 8;
    config.parallel.context = 2;
    config.parallel.tensor = tensor;
    config.recompute.hold = hold;
    const TrainedModel saves = TrainWith(config);
    config.parallel.gather_again = true;
    const TrainedModel again = TrainWith(config);
    ExpectEqual(saves, again);
    for (std::size_t stage = 0; stage < saves.saved.size(); ++stage) {
      EXPECT_LT(again.saved[stage], saves.saved[stage]) << stage;
    }
  }
}

// The token after the target of a rank's last token is on another rank.
TEST(ContextParallelRun, PredictsTheTokenAfterTheNextOne) {
  for (const bool pads : {false, true}) {
    TrainConfig config = ContextConfig("deepseek_v3", pads);
    config.model.options["balance"] = "none";
    config.model.options["predictor"] = "1";
    const TrainedModel expected = TrainWith(config);
    for (const auto& [exchange, context, tensor] :
         {std::tuple("all-gather", 2, 1), {"ulysses", 4, 1}, {"ring", 2, 2}}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", pads, exchange, context, tensor));
      config.parallel.context_exchange = exchange;
      config.parallel.context = context;
      config.parallel.tensor = tensor;
      const TrainedModel divided = TrainWith(config);
      ExpectEqualToRounding(expected, divided);
      ExpectEqual(divided, TrainWith(config));
    }
  }
}

// Muon has whole matrices on each rank.
TEST(ContextParallelRun, CombinesWithMuon) {
  TrainConfig config = ContextConfig("llama");
  config.optimizer.name = "muon";
  const TrainedModel expected = TrainWith(config);
  config.parallel.context = 2;
  ExpectEqualToRounding(expected, TrainWith(config));
}

using ContextParallelFiles = DividedRun;

TEST_F(ContextParallelFiles, TrainsTheSameModelOnOtherSamples) {
  text_ = folder_.Write("fortunes", DistinctDocuments(600, 90));
  const std::vector<std::vector<std::string>> cases = {
      {"document_mask=true"},
      {"document_mask=true", "sequence=19"},
      {"document_mask=true", "sequence=19", "context_exchange=ulysses"},
      {"document_mask=true", "sequence=19", "context_exchange=ring"},
      {"document_mask=true", "sequence=64", "context_exchange=ring", "exact=false"},
      {"model.name=gpt2", "document_mask=true", "sequence=19"},
      {"model.name=gpt2", "document_mask=true", "context_exchange=ring", "schedule=zb-h1"},
      {"data.lengths=16,64,31,9", "sequence=64", "batch=2"},
      {"data.lengths=16,64,31,9", "sequence=64", "document_mask=true"},
      {"schedule=seq1f1b", "slices=2"},
      {"schedule=seq1f1b", "slices=2", "context_exchange=ulysses"},
      {"model.name=gpt2", "schedule=seq1f1b", "slices=2"},
      {"model.name=deepseek_v3", "experts=4", "top_k=2", "schedule=seq1f1b", "slices=2"},
      {"model.name=deepseek_v3", "balance=none", "predictor=1", "document_mask=true", "sequence=19",
       "context_exchange=ring"},
      {"tied=true", "validation.freq=2"},
      {"precision=bf16", "recompute.hold=least"}};
  ExpectSameOnTwoRanks(cases, "parallel.context");
}

// Threads divide the tokens of the ranks of each process.
TEST_F(ContextParallelFiles, RunsOnSeveralProcesses) {
  ExpectProcessesAndInterruptionsChangeNoBits(
      {"ranks=2", "stages=2", "schedule=1f1b", "clip=0.5", "parallel.context=2"});
  EXPECT_TRUE(Contains(Log(), "mesh: 4 ranks = 1 data x 2 pipeline x 2 context, 2 processes"));
  EXPECT_TRUE(Contains(Log(), "rank 3: data 0, pipeline 1, context 1, process 1"));
}

TEST_F(ContextParallelFiles, DividesExpertsOnSeveralProcesses) {
  ExpectProcessesAndInterruptionsChangeNoBits(
      {"model.name=qwen3_moe", "experts=4", "top_k=2", "layers=2", "ranks=2", "stages=2",
       "schedule=1f1b", "parallel.data=2", "parallel.expert=2", "parallel.context=2"});
  EXPECT_TRUE(Contains(Log(), "mesh: 8 ranks = 2 data x 2 pipeline x 2 context, 2 processes"));
}

TEST_F(ContextParallelFiles, RunsCompiledStages) {
  const std::vector<std::string> options = {"ranks=2", "stages=2", "parallel.context=2",
                                            "parallel.tensor=2"};
  Train("captured", options);
  const std::string folder = folder_ / "stages";
  EXPECT_EQ(ValueOf(CompileStages(Config(options), folder)).size(), 8);
  EXPECT_TRUE(std::filesystem::exists(folder + "/stage1.context1.tensor1.safetensors"));
  Train("compiled", With(options, {"compiled=" + folder}));
  ExpectSameTensors(AllTensors(Folder("captured") + "/model.safetensors"),
                    AllTensors(Folder("compiled") + "/model.safetensors"));
}

TEST_F(ContextParallelFiles, ResumesWithAnyNumberOfRanks) {
  const auto with = [](const std::vector<std::string>& more) {
    return With({"heads=4", "ranks=2", "stages=2", "schedule=1f1b", "dropout=0"}, more);
  };
  const std::vector<StepMetric> expected = Train("one", with({}));
  Train("two", with({"parallel.context=2", "parallel.tensor=2"}));
  const std::vector<std::vector<StepMetric>> resumed = {
      Train("joined", with({"resume=" + At("two", 2)})),
      Train("divided", with({"resume=" + At("one", 2), "parallel.context=4"}))};
  for (const std::vector<StepMetric>& metrics : resumed) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(metrics[i].loss, expected[i].loss, 1e-4 * expected[i].loss) << i;
    }
  }
  // The state does not depend on who saves it.
  Train("copied", with({"resume=" + At("two", 5), "parallel.context=2"}));
  ExpectSameTensors(AllTensors(At("copied", 5)), AllTensors(At("two", 5)));
}

TEST_F(ContextParallelFiles, WritesWhatOneRankGeneratesAndExports) {
  const std::vector<std::string> options = {"heads=4", "ranks=2", "stages=2", "schedule=1f1b"};
  Train("two", With(options, {"parallel.context=2", "parallel.context_exchange=ring"}));
  Train("one", With(options, {"resume=" + At("two", 5)}));
  const auto text = ValueOf(GenerateText(Folder("two"), {.tokens = 20}));
  EXPECT_EQ(text.text, ValueOf(GenerateText(Folder("one"), {.tokens = 20})).text);
  EXPECT_EQ(ValueOf(Evaluate(At("two", 5))).held_out_loss,
            ValueOf(Evaluate(At("one", 5))).held_out_loss);
  const std::vector<std::string> of_two = ValueOf(ExportHuggingFace(Folder("two"), folder_ / "2"));
  const std::vector<std::string> of_one = ValueOf(ExportHuggingFace(Folder("one"), folder_ / "1"));
  ASSERT_EQ(of_one.size(), of_two.size());
  for (std::size_t i = 0; i < of_one.size(); ++i) {
    EXPECT_EQ(ValueOf(ReadFile(of_one[i])), ValueOf(ReadFile(of_two[i]))) << of_two[i];
  }
}

}  // namespace
}  // namespace penstock
