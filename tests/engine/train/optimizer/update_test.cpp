// With post-validation, runs end with the same bits as runs whose steps wait for the global
// gradient norm. Some gradients are clipped, and some are not finite.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/index.h"
#include "config/stage_ranges.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "tests/engine/train/tiny_run.h"
#include "train/optimizer/optimizer.h"
#include "train/run/pipeline.h"
#include "train/stage/gradient_norm.h"

namespace penstock {
namespace {

constexpr int kUpdateSteps = 6;
constexpr int kNonFiniteStep = 2;
constexpr int kLargeStep = 4;

struct Outcome {
  Status status;
  std::map<std::string, at::Tensor> weights;
  std::vector<Verdict> verdicts;
};

// Changes the accumulated gradients at two steps, when the last microbatch runs forward on the last
// stage. This is after the forwards that post-validation repeats.
BatchSource WithInjectedGradients(BatchSource source, const Pipeline& pipeline,
                                  int last_microbatch) {
  const auto targets = source.targets;
  source.targets = [&pipeline, targets, last_microbatch](std::int64_t step, int microbatch) {
    if (microbatch == last_microbatch && !pipeline.stages.empty()) {
      at::Tensor& gradient = pipeline.stages.back()->Parameters().front().gradient;
      if (step == kNonFiniteStep) gradient.fill_(std::numeric_limits<double>::quiet_NaN());
      if (step == kLargeStep) gradient.add_(1000.0);
    }
    return targets(step, microbatch);
  };
  return source;
}

// Runs the first `steps` steps of a run of kUpdateSteps.
Outcome Train(TrainConfig config, Schedule schedule, std::int64_t steps = kUpdateSteps) {
  at::set_num_threads(1);
  config.pipeline.microbatches = schedule.microbatches;
  config.model.layers = schedule.placement.chain_length();
  EXPECT_TRUE(SetShared(config, schedule));
  config.steps = kUpdateSteps;
  const std::vector<std::uint8_t> text = Text();
  Pipeline pipeline;
  const BatchSource source =
      WithInjectedGradients(MakeBatchSource(Sampler(text, config.model.sequence, 1), config),
                            pipeline, schedule.microbatches - 1);
  pipeline = BuildPipeline(config, schedule, source).value();
  Outcome outcome;
  RunOptions options = {.steps = steps, .update = UpdateRuleOf(config.optimizer)};
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  options.on_verdict = [&](std::int64_t, const Verdict& verdict) {
    outcome.verdicts.push_back(verdict);
  };
  outcome.status = RunRanks(schedule, pipeline.pointers(), options);
  outcome.weights = ByName(pipeline.model);
  return outcome;
}

// A schedule and a model.
using ScheduleAndModel = std::pair<const char*, const char*>;

class PostValidation : public testing::TestWithParam<ScheduleAndModel> {};

TEST_P(PostValidation, GivesTheBitsOfARunThatWaits) {
  const auto& [name_of_schedule, model] = GetParam();
  Schedule schedule = Generate(name_of_schedule, {.ranks = 2, .microbatches = 8}).value();
  TrainConfig config = TinyConfig();
  config.model.name = model;
  config.model.layers = schedule.placement.chain_length();
  ASSERT_TRUE(SetShared(config, schedule));
  config.optimizer.clip = 3;
  config.optimizer.nonfinite = "skip";
  config.precision = std::string(name_of_schedule) == "1f1b" ? "bf16" : "f32";
  const Outcome late = Train(config, schedule);
  ASSERT_TRUE(late.status) << late.status.error().line();
  config.optimizer.post_validation = true;
  const Schedule stepping = AddOptimizer(schedule, {.post_validation = true}).value();
  const Outcome early = Train(config, stepping);
  ASSERT_TRUE(early.status) << early.status.error().line();
  for (const auto& [name, value] : late.weights) {
    EXPECT_TRUE(at::equal(value, early.weights.at(name))) << name;
    EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
  }
  ASSERT_EQ(late.verdicts.size(), Index(kUpdateSteps));
  ASSERT_EQ(early.verdicts.size(), late.verdicts.size());
  for (int step = 0; step < kUpdateSteps; ++step) {
    const Verdict& expected = late.verdicts[step];
    EXPECT_EQ(expected.apply, step != kNonFiniteStep);
    EXPECT_EQ(early.verdicts[step].apply, expected.apply);
    EXPECT_EQ(early.verdicts[step].scale, expected.scale);
  }
  EXPECT_LT(late.verdicts[kLargeStep].scale, 0.01);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, PostValidation,
    testing::Values(ScheduleAndModel("1f1b", "llama"), ScheduleAndModel("zb-h2", "llama"),
                    ScheduleAndModel("zbv", "llama"), ScheduleAndModel("dualpipe", "llama"),
                    ScheduleAndModel("1f1b", "gpt2"), ScheduleAndModel("zbv", "gpt2"),
                    ScheduleAndModel("dualpipe", "gpt2")),
    [](const auto& info) {
      std::string name = std::string(info.param.first) + info.param.second;
      name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
      return name;
    });

TEST(NonFiniteGradients, FailTheRunWithTheNameOfTheParameter) {
  for (const double clip : {0.0, 1.0}) {
    TrainConfig config = TinyConfig();
    config.optimizer.clip = clip;
    const Outcome outcome =
        Train(config, Generate("1f1b", {.ranks = 2, .microbatches = 4}).value());
    ASSERT_FALSE(outcome.status);
    EXPECT_EQ(outcome.status.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(outcome.status.error().line().find("rank 1: 1STEP: the gradient of layers.1."), 0U)
        << outcome.status.error().line();
  }
}

// The learning rate is 0 at the last step of a run, so that step changes nothing. A skipped step
// before it must not delay the schedule of learning rates.
TEST(SkippedSteps, DoNotDelayTheLearningRates) {
  const Schedule schedule = Generate("1f1b", {.ranks = 2, .microbatches = 4}).value();
  for (const bool early : {false, true}) {
    TrainConfig config = TinyConfig();
    config.optimizer.nonfinite = "skip";
    config.optimizer.lr_end = 0;
    config.optimizer.post_validation = early;
    const Outcome all = Train(config, schedule, kUpdateSteps);
    const Outcome but_last = Train(config, schedule, kUpdateSteps - 1);
    ASSERT_TRUE(all.status && but_last.status);
    EXPECT_FALSE(all.verdicts[kNonFiniteStep].apply);
    for (const auto& [name, value] : all.weights) {
      EXPECT_TRUE(at::equal(value, but_last.weights.at(name))) << name;
    }
  }
}

TEST(SquaredNormTest, IsTheSumOfSquaresInAnyLayout) {
  at::manual_seed(3);
  for (const std::int64_t size : {1, 15, 16, 17, 1000}) {
    const at::Tensor value = at::randn({size, 3}, at::kFloat);
    const double expected = value.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(SquaredNorm(value), expected, 1e-9 * expected);
    EXPECT_NEAR(SquaredNorm(value.t()), expected, 1e-9 * expected);
  }
  EXPECT_FALSE(std::isfinite(SquaredNorm(at::full({40}, 1e300, at::kDouble).to(at::kFloat))));
}

TEST(SquaredNormTest, AParameterThatAnotherStageCountsIsNotCounted) {
  const at::Tensor value = at::zeros({2});
  std::vector<NamedParameter> parameters = {{"a", value, at::full({2}, 3.0)},
                                            {"b", value, at::full({2}, 4.0)}};
  parameters[1].counts = false;
  EXPECT_EQ(FiniteSquaredNorms(UpdateRule(), parameters), std::vector<double>{18});
}

}  // namespace
}  // namespace penstock
