// Recomputing attention, the MLP or both trains to the same bits, and a microbatch keeps as many
// bytes as predicted.
#include <gtest/gtest.h>

#include "graph/compile.h"
#include "model/model_entry.h"
#include "tests/engine/train/run/trained_model.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"

namespace penstock {
namespace {

TrainedModel TrainRecomputing(TrainConfig config, const std::string& modules) {
  config.recompute.modules = modules;
  return TrainWith(config);
}

struct RecomputeCase {
  std::string model, schedule;
  int expert = 1;
};

TrainConfig RecomputingConfig(const RecomputeCase& each) {
  TrainConfig config = TinyConfig();
  config.fuse = false;
  config.model.name = each.model;
  config.model.layers = 4;
  if (FindModelEntry(each.model)->experts) {
    config.model.options["experts"] = "4";
    config.model.options["top_k"] = "2";
  }
  config.pipeline.ranks = 2;
  config.pipeline.schedule = each.schedule;
  config.pipeline.microbatches = 4;
  config.parallel.data = config.parallel.expert = each.expert;
  return config;
}

class RecomputeModules : public testing::TestWithParam<RecomputeCase> {};

TEST_P(RecomputeModules, TrainsToTheSameBitsWithThePredictedBytes) {
  const TrainConfig config = RecomputingConfig(GetParam());
  const TrainedModel plain = TrainRecomputing(config, "all");
  const std::vector<std::string> choices = {"attention", "mlp", "attention+mlp"};
  std::map<std::string, std::vector<std::int64_t>> saved;
  for (const std::string& modules : choices) {
    SCOPED_TRACE(modules);
    const TrainedModel run = TrainRecomputing(config, modules);
    ExpectEqual(plain, run);
    saved[modules] = run.saved;
    for (std::size_t stage = 0; stage < run.saved.size(); ++stage) {
      EXPECT_LT(run.saved[stage], plain.saved[stage]);
      // A varying number of rows, as with experts on several ranks, is predicted by its mean.
      if (GetParam().expert > 1) continue;
      EXPECT_EQ(run.measured.stages[stage].activation, static_cast<double>(run.saved[stage]));
    }
  }
  for (std::size_t stage = 0; stage < plain.saved.size(); ++stage) {
    EXPECT_LT(saved["attention+mlp"][stage], saved["attention"][stage]);
    EXPECT_LT(saved["attention+mlp"][stage], saved["mlp"][stage]);
  }
}

std::vector<RecomputeCase> RecomputeCases() {
  std::vector<RecomputeCase> cases;
  for (const char* model :
       {"llama", "gpt2", "qwen3", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"}) {
    cases.push_back({model, "1f1b"});
  }
  cases.push_back({"llama", "zb1p"});
  cases.push_back({"mixtral", "zb1p", 2});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeModules, testing::ValuesIn(RecomputeCases()),
                         [](const auto& info) {
                           return info.param.model + "_" + info.param.schedule +
                                  (info.param.expert > 1 ? "_expert" : "");
                         });

// `penstock graph`, `penstock compile` and the memory estimate use the graphs of GraphsOfStage.
TEST(RecomputeModulesInGraphs, SaveWhatARunSaves) {
  TrainConfig config = RecomputingConfig({"llama", "1f1b"});
  config.recompute.modules = "attention";
  const TrainedModel run = TrainRecomputing(config, "attention");
  for (int stage = 0; stage < 2; ++stage) {
    const auto graphs = ValueOf(GraphsOfStage(config, stage, {}));
    EXPECT_EQ(MakeStageProgram(graphs).saved_bytes, run.saved[Index(stage)]);
  }
}

}  // namespace
}  // namespace penstock
