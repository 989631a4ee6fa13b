// Ranks that divide the experts train the same model as ranks that have all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/train/run/trained_model.h"

namespace penstock {
namespace {

TrainConfig MoeConfig(const std::string& model) {
  TrainConfig config = TinyConfig();
  config.model.name = model;
  config.model.layers = 4;
  config.model.options["experts"] = "8";
  config.model.options["top_k"] = "3";
  config.pipeline.ranks = 2;
  config.pipeline.microbatches = 8;
  return config;
}

void ExpectNear(const TrainedModel& expected, const TrainedModel& actual) {
  EXPECT_EQ(expected.losses.front(), actual.losses.front());  // the forward is bitwise the same
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(expected.losses[i], actual.losses[i], 1e-4);
  }
  ASSERT_EQ(expected.parameters.size(), actual.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    ASSERT_EQ(value.sizes(), actual.parameters.at(name).sizes()) << name;
    EXPECT_LT((value - actual.parameters.at(name)).abs().max().item<float>(), 1e-4) << name;
  }
}

class ExpertParallel : public testing::TestWithParam<std::string> {};

TEST_P(ExpertParallel, TrainsTheSameModel) {
  TrainConfig config = MoeConfig(GetParam());
  config.parallel.data = 4;
  const TrainedModel expected = TrainWith(config);
  for (const int expert : {2, 4}) {
    for (int zero = 0; zero <= 3; zero += expert / 2) {
      SCOPED_TRACE(fmt::format("expert={} zero={}", expert, zero));
      config.parallel.expert = expert;
      config.parallel.zero = zero;
      ExpectNear(expected, TrainWith(config));
    }
  }
}

TEST_P(ExpertParallel, TrainsTheSameModelWithEverySchedule) {
  bool exact = GetParam() == "deepseek_v3";
  for (const char* const schedule : {"gpipe", "interleaved", "zbv", "dualpipe", "dualpipev"}) {
    exact = !exact;
    SCOPED_TRACE(fmt::format("{} exact={}", schedule, exact));
    TrainConfig config = MoeConfig(GetParam());
    config.pipeline.schedule = schedule;
    config.exact = exact;
    config.optimizer.clip = 0.5;
    config.parallel.data = 2;
    const TrainedModel expected = TrainWith(config);
    config.parallel.expert = 2;
    ExpectNear(expected, TrainWith(config));
  }
}

// Shards of 0 to 3 add the same numbers.
TEST_P(ExpertParallel, SumsGradientsInBf16) {
  TrainConfig config = MoeConfig(GetParam());
  config.optimizer.gradient_dtype = "bf16";
  config.parallel.data = 4;
  config.parallel.expert = 2;
  config.parallel.zero = 1;
  const TrainedModel expected = TrainWith(config);
  for (const int zero : {2, 3}) {
    SCOPED_TRACE(fmt::format("zero={}", zero));
    config.parallel.zero = zero;
    ExpectEqual(expected, TrainWith(config));
  }
}

TEST_P(ExpertParallel, RepeatsBitwise) {
  TrainConfig config = MoeConfig(GetParam());
  config.parallel.data = config.parallel.expert = 2;
  ExpectEqual(TrainWith(config), TrainWith(config));
}

// The link orders the nodes of overlapped pairs, and exchanges wait for its latency.
TEST_P(ExpertParallel, ALinkTakesTimeAndChangesNoBit) {
  TrainConfig config = MoeConfig(GetParam());
  config.pipeline.schedule = "dualpipev";
  config.parallel.data = config.parallel.expert = 2;
  const TrainedModel expected = TrainWith(config);
  constexpr double kLatency = 0.01;
  config.parallel.link = "1GB/s 10ms";
  const TrainedModel actual = TrainWith(config);
  ExpectEqual(expected, actual);
  // Not every stage has experts.
  const auto slowest = std::ranges::max_element(actual.measured.stages, {}, &StageCosts::forward);
  EXPECT_GE(slowest->forward, kLatency);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertParallel, testing::Values("qwen3_moe", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

TEST(ExpertParallel, RefusesWhatCannotBeDivided) {
  const auto message = [](const std::string& model, int data, int expert) {
    TrainConfig config = model == "llama" ? TinyConfig() : MoeConfig(model);
    config.pipeline.ranks = 2;
    config.pipeline.microbatches = 12;
    config.parallel.data = data;
    config.parallel.expert = expert;
    const auto schedule = ChooseSchedule(config, 2);
    return schedule ? "no error" : schedule.error().line();
  };
  EXPECT_EQ(message("qwen3_moe", 2, 2), "no error");
  EXPECT_NE(message("llama", 2, 2).find("model llama has no experts"), std::string::npos);
  EXPECT_NE(message("qwen3_moe", 3, 3).find("does not divide the 8 experts"), std::string::npos);
  EXPECT_NE(message("qwen3_moe", 3, 2).find("does not divide the 3 replicas"), std::string::npos);
}

// A bias moves by the same step for every expert, against its load.
TEST(ExpertParallel, BalancesByABias) {
  TrainConfig config = MoeConfig("deepseek_v3");
  config.optimizer.balance_rate = 0.125;  // sums of it are exact
  config.optimizer.clip = 1e-3;           // does not scale it
  const std::string name = "layers.1.router.bias";
  const at::Tensor bias = TrainWith(config).parameters.at(name);
  const at::Tensor steps = bias / config.optimizer.balance_rate;
  EXPECT_TRUE(steps.equal(steps.round()));
  EXPECT_LE(steps.abs().max().item<float>(), static_cast<float>(config.steps));
  EXPECT_GT(steps.max().item<float>(), 0);
  EXPECT_LT(steps.min().item<float>(), 0);
  config.parallel.data = config.parallel.expert = 2;
  EXPECT_TRUE(TrainWith(config).parameters.at(name).equal(bias));
}

}  // namespace
}  // namespace penstock
