// Ranks that shard the embedding, the head and the loss train the same model as stages that have
// them whole.
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/index.h"
#include "runtime/executor/run.h"
#include "schedule/text/text.h"
#include "tests/train/temp_folder.h"
#include "tests/train/tiny_run.h"
#include "train/memory/shard_bytes.h"
#include "train/run/pipeline.h"
#include "train/run/run_checks.h"
#include "train/setup.h"

namespace penstock {
namespace {

struct TrainedTables {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;
};

// The ranks hold exactly the bytes that are predicted for them, so no rank has a whole table.
void ExpectBytes(const TrainConfig& config, const Schedule& schedule, const Pipeline& pipeline) {
  const auto predicted = PredictRankBytes(config, schedule).value();
  for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
    const RankShards& held = *pipeline.rank_shards[rank];
    const RankBytes bytes{held.weights.peak(), held.gradients.peak(), held.optimizer.peak()};
    EXPECT_EQ(bytes, predicted[rank]) << "rank " << rank;
  }
}

// Trains and returns the losses and the gathered weights.
TrainedTables TrainAndGather(TrainConfig config) {
  at::set_num_threads(1);
  const Schedule schedule = ChooseSchedule(config, 2).value();
  EXPECT_EQ(schedule.vocabulary, config.parallel.shard_vocabulary);
  const std::vector<std::uint8_t> text = Text();
  const BatchSource source =
      MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config);
  auto built = BuildPipeline(config, schedule, source);
  EXPECT_TRUE(built) << built.error().message;
  Pipeline pipeline = *std::move(built);
  ExpectBytes(config, schedule, pipeline);
  TrainedTables result;
  result.losses.resize(Index(config.steps));
  RunOptions options;
  options.steps = config.steps;
  options.update = UpdateRuleOf(config.optimizer);
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t step) {
    if (rank == last) result.losses[Index(step)] = pipeline.StepLoss();
  };
  const std::vector<Stage*> stages = pipeline.pointers();
  const Status status = RunRanks(schedule, stages, options);
  EXPECT_TRUE(status) << status.error().message;
  GatherWeights(pipeline, schedule);
  result.parameters = ByName(pipeline.model);
  DropGatheredWeights(pipeline);
  return result;
}

// Neither 2 nor 3 ranks divide the vocabulary. With such a large epsilon, an update is about
// proportional to its gradient, so the weights differ as little as the gradients.
TrainConfig TableConfig(const std::string& model, const std::string& tied) {
  TrainConfig config = TinyConfig();
  config.model.name = model;
  config.model.options["tied"] = tied;
  config.model.vocabulary = 25;
  config.model.layers = 6;
  config.pipeline.microbatches = 6;
  config.optimizer.epsilon = 1e-2;
  return config;
}

TrainConfig WithShards(TrainConfig config) {
  config.parallel.shard_vocabulary = true;
  return config;
}

void ExpectNearlyEqual(const TrainedTables& actual, const TrainedTables& expected,
                       double tolerance) {
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance * expected.losses[step]);
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(at::allclose(actual.parameters.at(name), value, 10 * tolerance, tolerance)) << name;
  }
}

struct ScheduleShape {
  const char* schedule;
  int ranks, chunks;
};

TEST(ShardVocabulary, TrainsTheSameModel) {
  const ScheduleShape shapes[] = {{"1f1b", 2, 1}, {"1f1b", 3, 1},  {"interleaved", 3, 2},
                                  {"zbv", 3, 2},  {"zb-h1", 2, 1}, {"gpipe", 3, 1}};
  const std::pair<const char*, const char*> models[] = {{"llama", "false"}, {"gpt2", "true"}};
  for (const auto& [schedule, ranks, chunks] : shapes) {
    for (const auto& [model, tied] : models) {
      SCOPED_TRACE(fmt::format("{} of {} on {} ranks", schedule, model, ranks));
      TrainConfig config = TableConfig(model, tied);
      config.pipeline.schedule = schedule;
      config.pipeline.ranks = ranks;
      config.pipeline.chunks = chunks;
      config.pipeline.stages = ranks * chunks;
      ExpectNearlyEqual(TrainAndGather(WithShards(config)), TrainAndGather(config), 1e-6);
    }
  }
}

TEST(ShardVocabulary, TrainsEveryKindOfTable) {
  for (const auto& [model, tied] : {std::pair{"llama", "true"}, std::pair{"gpt2", "false"},
                                    std::pair{"qwen3", "false"}, std::pair{"qwen3", "true"}}) {
    SCOPED_TRACE(fmt::format("{}, tied {}", model, tied));
    TrainConfig config = TableConfig(model, tied);
    config.pipeline.ranks = config.pipeline.stages = 3;
    config.optimizer.clip = 0.1;
    config.optimizer.ema = 0.9;
    ExpectNearlyEqual(TrainAndGather(WithShards(config)), TrainAndGather(config), 1e-6);
  }
}

TEST(ShardVocabulary, TrainsInBf16) {
  TrainConfig config = TableConfig("llama", "false");
  config.precision = "bf16";
  config.pipeline.ranks = config.pipeline.stages = 3;
  ExpectNearlyEqual(TrainAndGather(WithShards(config)), TrainAndGather(config), 2e-3);
}

// Rolls steps back, because the gradients are clipped.
TEST(ShardVocabulary, PostValidationChangesNoBit) {
  TrainConfig config = WithShards(TableConfig("llama", "false"));
  config.pipeline.ranks = config.pipeline.stages = 3;
  config.optimizer.clip = 0.05;
  const TrainedTables expected = TrainAndGather(config);
  config.optimizer.post_validation = true;
  const TrainedTables actual = TrainAndGather(config);
  EXPECT_EQ(actual.losses, expected.losses);
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(at::equal(actual.parameters.at(name), value)) << name;
  }
}

TEST(ShardVocabulary, FollowsTheCsv) {
  const TempFolder folder;
  TrainConfig config = WithShards(TableConfig("llama", "false"));
  config.pipeline.ranks = config.pipeline.stages = 3;
  const Schedule expected = ChooseSchedule(config, 2).value();
  const std::string csv = folder.Write("schedule.csv", WriteCsv(expected));
  config = TableConfig("llama", "false");
  config.pipeline.csv = csv;
  const Schedule schedule = ChooseSchedule(config, 2).value();
  EXPECT_EQ(schedule.lanes, expected.lanes);
  EXPECT_TRUE(config.parallel.shard_vocabulary);
}

TEST(ShardVocabulary, RefusesWhatItCannotCombine) {
  const auto refuse = [](const char* reason, const auto& change) {
    TrainConfig config = WithShards(TableConfig("llama", "false"));
    config.pipeline.ranks = 2;
    change(config);
    const auto schedule = ChooseSchedule(config, 2);
    const auto checked = CheckRun(config);
    ASSERT_FALSE(schedule && checked) << reason;
    const std::string& message = (schedule ? checked.error() : schedule.error()).message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  refuse("parallel.data=1", [](TrainConfig& config) { config.parallel.data = 2; });
  refuse("weights without a flush",
         [](TrainConfig& config) { config.pipeline.schedule = "pipedream"; });
  refuse("slices", [](TrainConfig& config) {
    config.pipeline.schedule = "seq1f1b";
    config.pipeline.slices = 5;
  });
  refuse("replicas of the stages",
         [](TrainConfig& config) { config.pipeline.schedule = "dualpipe"; });
  refuse("model.predictor=0", [](TrainConfig& config) {
    config.model.name = "deepseek_v3";
    config.model.options = {{"predictor", "1"}};
  });
  refuse("Muon updates whole matrices",
         [](TrainConfig& config) { config.optimizer.groups = "[{match: head, name: muon}]"; });
}

}  // namespace
}  // namespace penstock
