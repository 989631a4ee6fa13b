// Ranks that shard the embedding, the head and the loss train the same model as stages that have
// them whole.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "schedule/text/text.h"
#include "tests/engine/train/run/trained_model.h"
#include "tests/engine/train/temp_folder.h"
#include "train/memory/shard_bytes.h"
#include "train/run/run_checks.h"

namespace penstock {
namespace {

// The ranks hold exactly the bytes that are predicted for them, so no rank has a whole table.
void ExpectBytes(const TrainConfig& config, const Schedule& schedule, const Pipeline& pipeline) {
  const auto predicted = PredictRankBytes(config, schedule).value();
  for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
    const RankShards& held = *pipeline.rank_shards[rank];
    const RankBytes bytes{held.weights.peak(), held.gradients.peak(), held.optimizer.peak()};
    EXPECT_EQ(bytes, predicted[rank]) << "rank " << rank;
  }
}

// Trains with whole or sharded tables.
TrainedModel TrainTables(const TrainConfig& config) {
  return TrainWith(config, [&](const Schedule& schedule, const Pipeline& pipeline) {
    EXPECT_EQ(schedule.vocabulary, config.parallel.shard_vocabulary);
    ExpectBytes(config, schedule, pipeline);
  });
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

void ExpectNearlyEqual(const TrainedModel& actual, const TrainedModel& expected, double tolerance) {
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
      ExpectNearlyEqual(TrainTables(WithShards(config)), TrainTables(config), 1e-6);
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
    ExpectNearlyEqual(TrainTables(WithShards(config)), TrainTables(config), 1e-6);
  }
}

// The text has every token, so the last row of the last rank is read and trained.
TEST(ShardVocabulary, TrainsTheLastRow) {
  TrainConfig config = TableConfig("llama", "false");
  config.model.vocabulary = 24;
  config.pipeline.ranks = config.pipeline.stages = 5;
  ExpectNearlyEqual(TrainTables(WithShards(config)), TrainTables(config), 1e-6);
}

TEST(ShardVocabulary, TrainsInBf16) {
  TrainConfig config = TableConfig("llama", "false");
  config.precision = "bf16";
  config.pipeline.ranks = config.pipeline.stages = 3;
  ExpectNearlyEqual(TrainTables(WithShards(config)), TrainTables(config), 2e-3);
}

TEST(ShardVocabulary, SumsGradientsInBf16) {
  TrainConfig config = TableConfig("gpt2", "true");
  config.optimizer.gradient_dtype = "bf16";
  config.pipeline.ranks = config.pipeline.stages = 3;
  ExpectNearlyEqual(TrainTables(WithShards(config)), TrainTables(config), 2e-3);
}

// Rolls steps back, because the gradients are clipped.
TEST(ShardVocabulary, PostValidationChangesNoBit) {
  TrainConfig config = WithShards(TableConfig("llama", "false"));
  config.pipeline.ranks = config.pipeline.stages = 3;
  config.optimizer.clip = 0.05;
  const TrainedModel expected = TrainTables(config);
  config.optimizer.post_validation = true;
  ExpectEqual(expected, TrainTables(config));
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
  refuse("only without replicas", [](TrainConfig& config) { config.parallel.data = 2; });
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
