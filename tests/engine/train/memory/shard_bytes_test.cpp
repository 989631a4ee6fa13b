// Weights, gradients and optimizer state take exactly the predicted memory.
#include "train/memory/shard_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "config/replicas.h"
#include "config/stage_ranges.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "tests/engine/train/tiny_run.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

// Trains two steps and returns the most bytes that each rank held.
std::vector<RankBytes> Measure(const TrainConfig& config, const Schedule& schedule) {
  const std::vector<std::uint8_t> text = Text();
  const BatchSource source = MakeBatchSource(Sampler(text, config.model.sequence, 1), config);
  const Pipeline pipeline = BuildPipeline(config, schedule, source).value();
  RunOptions options = {.steps = 2, .update = UpdateRuleOf(config.optimizer)};
  options.update.zero = pipeline.zero;
  const std::vector<Stage*> stages = pipeline.pointers();
  const Status status = RunRanks(schedule, stages, options);
  EXPECT_TRUE(status) << status.error().line();
  std::vector<RankBytes> ranks;
  for (const auto& held : pipeline.rank_shards) {
    ranks.push_back({held->weights.peak(), held->gradients.peak(), held->optimizer.peak()});
  }
  return ranks;
}

void ExpectPredicted(TrainConfig config, Schedule schedule) {
  ASSERT_TRUE(SetShared(config, schedule));
  config.pipeline.microbatches = schedule.microbatches;
  const std::vector<RankBytes> predicted = PredictRankBytes(config, schedule).value();
  const std::vector<RankBytes> measured = Measure(config, schedule);
  ASSERT_EQ(predicted.size(), measured.size());
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(predicted[rank].weights, measured[rank].weights);
    EXPECT_EQ(predicted[rank].gradients, measured[rank].gradients);
    EXPECT_EQ(predicted[rank].optimizer, measured[rank].optimizer);
  }
}

TrainConfig RandomConfig(std::mt19937& random) {
  TrainConfig config = TinyConfig();
  if (random() % 2 == 0) config.precision = "bf16";
  if (random() % 2 == 0) config.model.name = "gpt2";
  if (random() % 2 == 0) config.optimizer.clip = 0.5;
  if (random() % 2 == 0) config.optimizer.ema = 0.9;
  if (random() % 2 == 0) config.optimizer.gradient_dtype = "bf16";
  config.optimizer.post_validation = config.optimizer.clip > 0 && random() % 2 == 0;
  config.parallel.lookahead = static_cast<int>(random() % 3);
  config.parallel.residency = static_cast<int>(random() % 3);
  return config;
}

class ShardBytes : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(ShardBytes, ArePredictedExactly) {
  const auto& [algorithm, zero] = GetParam();
  std::mt19937 random(static_cast<unsigned>(zero));
  for (int i = 0; i < 2; ++i) {
    const Schedule pipeline = Generate(algorithm, {.ranks = 2, .microbatches = 4}).value();
    TrainConfig config = RandomConfig(random);
    config.parallel.data = 2;
    config.parallel.zero = zero;
    config.model.layers = pipeline.placement.chain_length();
    SCOPED_TRACE(fmt::format("{} {}", config.precision, config.model.name));
    const Schedule replicated = AddDataParallelism(pipeline, 2).value();
    // Muon needs a group of the replicas that have the shards.
    if (i == 1 && (zero == 0 || HasReplicaGroups(config.parallel, replicated))) {
      config.optimizer.name = "muon";
    }
    ExpectPredicted(config, ShardSchedule(replicated, config.parallel).value());
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, ShardBytes,
                         testing::Combine(testing::Values("1f1b", "zbv", "looped-bfs", "dualpipe"),
                                          testing::Range(0, 4)));

// With more replicas, a rank holds less.
TEST(RankBytes, FallWithTheReplicas) {
  const auto bytes = [](int data, int zero) {
    TrainConfig config = TinyConfig();
    config.model.layers = 16;
    config.parallel = {data, zero};
    Schedule schedule =
        AddDataParallelism(
            Generate("looped-bfs", {.ranks = 2, .chunks = 8, .microbatches = 4}).value(), data)
            .value();
    schedule = ShardSchedule(schedule, config.parallel).value();
    return PredictRankBytes(config, schedule).value()[0];
  };
  const RankBytes whole = bytes(4, 0);
  EXPECT_EQ(bytes(4, 1).weights, whole.weights);
  EXPECT_LT(bytes(4, 1).optimizer, whole.optimizer / 3);
  EXPECT_LT(bytes(4, 2).gradients, whole.gradients * 0.6);
  EXPECT_LT(bytes(4, 3).weights, whole.weights * 0.75);
  EXPECT_LT(bytes(8, 3).optimizer, bytes(4, 3).optimizer);
}

}  // namespace
}  // namespace penstock
