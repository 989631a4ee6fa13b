// Recomputing attention, the MLP or both trains to the same bits, and a microbatch keeps as many
// bytes as predicted.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/index.h"
#include "graph/compile.h"
#include "model/model_entry.h"
#include "runtime/executor/run.h"
#include "runtime/measure/measure.h"
#include "tests/train/tiny_run.h"
#include "train/compiled/compile_stages.h"
#include "train/run/pipeline.h"
#include "train/setup.h"

namespace penstock {
namespace {

struct ModulesRun {
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses;
  std::vector<std::int64_t> saved;  // by stage: bytes of a microbatch that its program predicts
  Costs measured;
};

ModulesRun TrainRecomputing(TrainConfig config, const std::string& modules) {
  at::set_num_threads(1);
  config.recompute.modules = modules;
  const Schedule schedule = ChooseSchedule(config, 2).value();
  const std::vector<std::uint8_t> text = Text();
  auto built = BuildPipeline(
      config, schedule, MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config));
  EXPECT_TRUE(built) << built.error().message;
  Pipeline pipeline = *std::move(built);
  ModulesRun result;
  result.losses.resize(Index(config.steps));
  Trace trace = Trace::Make(schedule).value();
  RunOptions options;
  options.steps = config.steps;
  options.update = UpdateRuleOf(config.optimizer);
  options.update.zero = pipeline.zero;
  options.trace = &trace;
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t step) {
    if (rank == last) result.losses[Index(step)] = pipeline.last().StepLoss();
  };
  const Status status = RunRanks(schedule, pipeline.pointers(), options);
  EXPECT_TRUE(status) << status.error().message;
  GatherWeights(pipeline, schedule);
  result.parameters = ByName(pipeline.model);
  for (const auto& stage : pipeline.stages) result.saved.push_back(stage->SavedBytes());
  result.measured = MeasuredCosts(trace);
  return result;
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
  const ModulesRun plain = TrainRecomputing(config, "all");
  const std::vector<std::string> choices = {"attention", "mlp", "attention+mlp"};
  std::map<std::string, std::vector<std::int64_t>> saved;
  for (const std::string& modules : choices) {
    SCOPED_TRACE(modules);
    const ModulesRun run = TrainRecomputing(config, modules);
    EXPECT_EQ(run.losses, plain.losses);
    for (const auto& [name, value] : plain.parameters) {
      EXPECT_TRUE(at::equal(value, run.parameters.at(name))) << name;
    }
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
    cases.push_back({model, "zb1p"});
  }
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
  const ModulesRun run = TrainRecomputing(config, "attention");
  for (int stage = 0; stage < 2; ++stage) {
    const auto graphs = GraphsOfStage(config, stage, {});
    ASSERT_TRUE(graphs) << graphs.error().message;
    EXPECT_EQ(MakeStageProgram(*graphs).saved_bytes, run.saved[Index(stage)]);
  }
}

}  // namespace
}  // namespace penstock
