// Updates that involve several stages: gradients of replicas, clipping by the norm of all
// gradients, and steps before the norm is known.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "base/index.h"
#include "runtime/executor/run.h"
#include "runtime/update/update_points.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/engine/runtime/weight_stage.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr int kSteps = 6;
constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();

struct Outcome {
  Status status;
  std::vector<double> weights;    // by stage
  std::vector<Verdict> verdicts;  // by step
  int undone = 0;                 // steps rolled back
  std::int64_t steps = 0;
};

struct Length {
  std::int64_t steps = kSteps;
  const std::atomic<bool>* stop = nullptr;
};

Outcome Train(const Schedule& schedule, const UpdateRule& rule,
              const WeightStage::Inject& inject = nullptr, const Length& length = {}) {
  std::vector<std::unique_ptr<WeightStage>> owned;
  std::vector<Stage*> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    owned.push_back(std::make_unique<WeightStage>(schedule, stage, inject));
    stages.push_back(owned.back().get());
  }
  Outcome outcome;
  RunOptions options = {
      .steps = length.steps, .stop = length.stop, .rounds_run = &outcome.steps, .update = rule};
  options.on_verdict = [&](std::int64_t step, const Verdict& verdict) {
    EXPECT_EQ(step, static_cast<std::int64_t>(outcome.verdicts.size()));
    outcome.verdicts.push_back(verdict);
  };
  outcome.status = RunRanks(schedule, stages, options);
  for (const auto& stage : owned) {
    outcome.weights.push_back(stage->weight());
    outcome.undone += stage->undone();
  }
  return outcome;
}

void ExpectSameRun(const Outcome& one, const Outcome& other) {
  ASSERT_TRUE(one.status) << one.status.error().line();
  ASSERT_TRUE(other.status) << other.status.error().line();
  EXPECT_EQ(one.weights, other.weights);
  ASSERT_EQ(one.verdicts.size(), other.verdicts.size());
  for (std::size_t i = 0; i < one.verdicts.size(); ++i) {
    if (!one.verdicts[i].apply && !other.verdicts[i].apply) continue;
    EXPECT_EQ(one.verdicts[i].norm, other.verdicts[i].norm) << i;
  }
}

// Returns factors for gradients: of `among` + 1 draws, one is large and one is NaN.
WeightStage::Inject RandomInjection(unsigned seed, int among) {
  return [seed, among](int stage, std::int64_t step) {
    Random random(seed + static_cast<unsigned>(step) * 131 + static_cast<unsigned>(stage) * 7);
    const int draw = Uniform(random, 0, among);
    return draw == 0 ? 1e3 : draw == 1 ? kNotFinite : 1.0;
  };
}

TEST(UpdateTest, ReplicasStayBitwiseEqual) {
  Random random(21);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const Outcome outcome = Train(schedule, {});
    ASSERT_TRUE(outcome.status) << outcome.status.error().line();
    const int length = schedule.placement.chain_length();
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      EXPECT_EQ(outcome.weights[stage], outcome.weights[stage % length]);
    }
  }
}

// Returns a schedule without STEPs whose stages share weights in random groups.
Schedule RandomSharing(Random& random) {
  Schedule schedule = RandomSchedule(random);
  for (Lane& lane : schedule.lanes) {
    std::erase_if(lane, [](const Action& action) { return action.first.op == Op::kStep; });
  }
  std::vector<std::vector<int>> groups(3);
  for (int stage = 0; stage < schedule.placement.chain_length(); ++stage) {
    const int group = Uniform(random, 0, 3);
    if (group < 3) groups[group].push_back(stage);
  }
  std::erase_if(groups, [](const std::vector<int>& group) { return group.size() < 2; });
  schedule.shared = std::move(groups);
  return schedule;
}

// The norm counts a shared weight once, so clipping scales the sum of its gradients.
TEST(UpdateTest, SharedWeightsStayBitwiseEqual) {
  Random random(23);
  int groups = 0, undone = 0;
  for (int i = 0; i < 80; ++i) {
    const Schedule schedule = RandomSharing(random);
    groups += static_cast<int>(schedule.shared.size());
    const int length = schedule.placement.chain_length();
    const auto inject = RandomInjection(static_cast<unsigned>(i), 3 * schedule.stages());
    const UpdateRule late{.clip = 1, .skip_nonfinite = true};
    UpdateRule early = late;
    early.post_validation = true;
    const std::vector<Outcome> outcomes = {Train(schedule, {}), Train(schedule, late, inject),
                                           Train(schedule, early, inject)};
    for (const Outcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.status) << outcome.status.error().line();
      for (const std::vector<int>& holders : schedule.shared) {
        for (int chain = 0; chain < schedule.placement.replicas(); ++chain) {
          for (const int stage : holders) {
            EXPECT_EQ(outcome.weights[chain * length + stage], outcome.weights[holders.front()]);
          }
        }
      }
    }
    ExpectSameRun(outcomes[1], outcomes[2]);
    undone += outcomes[2].undone;
  }
  EXPECT_GT(groups, 60);
  EXPECT_GT(undone, 20);
}

TEST(UpdateTest, SharedWeightsCountOnceInTheNorm) {
  Schedule schedule = Generate("looped-bfs", {.ranks = 1, .chunks = 2, .microbatches = 3}).value();
  schedule.shared = {{0, 1}};
  std::vector<double> norms;
  for (const double clip : {1e9, 1e8}) {
    norms.push_back(Train(schedule, {.clip = clip}, nullptr, {.steps = 1}).verdicts.front().norm);
  }
  // After one step from the same weights, the norm belongs to the gradient that moved the weight.
  const Outcome moved = Train(schedule, {.clip = 1e9}, nullptr, {.steps = 1});
  EXPECT_NEAR(std::abs(moved.weights[0] - 0.3) / 0.05, norms[0], 1e-12);
  EXPECT_EQ(norms[0], norms[1]);
}

TEST(UpdateTest, StageThatSharesAndStepsTooEarlyIsNamed) {
  Schedule schedule =
      ParseCsv("0F0,3F0,3B0,3STEP,0B0,0STEP\n1F0,2F0,2B0,1B0,1STEP,2STEP\n").value();
  schedule.shared = {{0, 3}};
  const Outcome outcome = Train(schedule, {});
  ASSERT_FALSE(outcome.status);
  EXPECT_EQ(outcome.status.error().line(),
            "rank 0, action 3 (3STEP): the stage shares a parameter with another one, so it steps "
            "after all other actions of its rank, and 0B0 follows");
}

TEST(UpdateTest, ClippingLimitsTheNormAndALargeLimitChangesNothing) {
  const Schedule schedule = Generate("1f1b", {.microbatches = 8}).value();
  const Outcome plain = Train(schedule, {});
  ExpectSameRun(Train(schedule, {.clip = 1e9}), Train(schedule, {.clip = 1e8}));
  EXPECT_EQ(Train(schedule, {.clip = 1e9}).weights, plain.weights);
  const Outcome clipped = Train(schedule, {.clip = 0.01});
  EXPECT_NE(clipped.weights, plain.weights);
  ASSERT_EQ(clipped.verdicts.size(), Index(kSteps));
  for (const Verdict& verdict : clipped.verdicts) {
    EXPECT_NEAR(verdict.norm * verdict.scale, 0.01, 1e-12);
  }
}

// The norm is summed in the order of the model's stages for every placement.
TEST(UpdateTest, NormIsTheSameForEveryPlacement) {
  std::vector<Outcome> outcomes;
  for (const auto& [name, ranks, chunks] :
       {std::tuple("gpipe", 4, 1), std::tuple("looped-bfs", 2, 2),
        std::tuple("looped-bfs", 1, 4)}) {
    outcomes.push_back(
        Train(Generate(name, {.ranks = ranks, .chunks = chunks, .microbatches = 4}).value(),
              {.clip = 0.05}));
  }
  ExpectSameRun(outcomes[0], outcomes[1]);
  ExpectSameRun(outcomes[0], outcomes[2]);
}

TEST(UpdateTest, EarlyStepsAreBitwiseEqualToLateOnes) {
  Random random(22);
  int undone = 0;
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = RandomSchedule(random);
    UpdateRule rule = {.clip = i % 3 == 0 ? 0.0 : 2.0, .skip_nonfinite = true};
    const auto inject = RandomInjection(static_cast<unsigned>(i), 2 + 3 * schedule.stages());
    const Outcome late = Train(schedule, rule, inject);
    rule.post_validation = true;
    const Outcome early = Train(schedule, rule, inject);
    ExpectSameRun(early, late);
    undone += early.undone;
    EXPECT_EQ(late.undone, 0);
    if (HasFailure()) FAIL() << "schedule " << i;
  }
  EXPECT_GT(undone, 20);
}

// STEPs inside lanes, as the optimizer pass places them.
TEST(UpdateTest, EarlyStepsInsideLanesEqualLateOnes) {
  for (const std::string name : {"1f1b", "zb-h2", "zbv", "interleaved", "dualpipe", "chimera"}) {
    const Schedule compute = Generate(name, {.microbatches = 8}).value();
    const Schedule early = AddOptimizer(compute, {.post_validation = true}).value();
    const Schedule late = AddOptimizer(compute, {.post_validation = false}).value();
    UpdateRule rule{.clip = 2, .skip_nonfinite = true};
    const auto inject = RandomInjection(5, 12);
    const Outcome expected = Train(late, rule, inject);
    rule.post_validation = true;
    ExpectSameRun(Train(early, rule, inject), expected);
    ExpectSameRun(Train(late, rule, inject), expected);
  }
}

TEST(UpdateTest, NonFiniteGradientIsSkippedOrFailsTheRun) {
  ScheduleParams params;
  const Schedule schedule = Generate("1f1b", params).value();
  const auto inject = [](int stage, std::int64_t step) {
    return stage == 2 && step == 3 ? kNotFinite : 1.0;
  };
  const Outcome skipped = Train(schedule, {.skip_nonfinite = true}, inject);
  ASSERT_TRUE(skipped.status);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(skipped.verdicts[step].apply, step != 3);
  }
  for (const bool early : {false, true}) {
    const Outcome failed = Train(schedule, {.clip = 1, .post_validation = early}, inject);
    ASSERT_FALSE(failed.status);
    EXPECT_EQ(failed.status.error().line(),
              "rank 2: 2STEP: the gradient of weight 2 is not finite: lower the learning "
              "rate, or set skip_nonfinite");
  }
}

// All ranks end after the same step, with its verdict and no effect of a later step.
TEST(UpdateTest, StoppedRunEqualsAShorterRun) {
  Random random(23);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = RandomSchedule(random);
    UpdateRule rule;
    WeightStage::Inject inject = [](int, std::int64_t) { return 1.0; };
    if (i % 4 > 0) {
      rule = {.clip = 2, .skip_nonfinite = true, .post_validation = i % 4 == 1};
      inject = RandomInjection(static_cast<unsigned>(i), 2 + 3 * schedule.stages());
    }
    std::atomic<bool> stop{false};
    const int stage = Uniform(random, 0, schedule.stages() - 1), step = Uniform(random, 0, 5);
    const auto stopping = [&](int of, std::int64_t at) {
      if (of == stage && at == step) stop.store(true);
      return inject(of, at);
    };
    const Outcome stopped = Train(schedule, rule, stopping, {std::int64_t{1} << 40, &stop});
    EXPECT_GT(stopped.steps, step);
    ExpectSameRun(stopped, Train(schedule, rule, inject, {stopped.steps}));
    if (HasFailure()) FAIL() << "schedule " << i;
  }
}

TEST(UpdateTest, RefusesANormThatIsKnownTooLate) {
  const Schedule early =
      AddOptimizer(Generate("zbv", {.chunks = 2}).value(), {.post_validation = true}).value();
  const Outcome refused = Train(early, {.clip = 1});
  ASSERT_FALSE(refused.status);
  EXPECT_EQ(refused.status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(Contains(refused.status.error().line(), "use post-validation"));
}

// The watchdog reports what a rank waits for between its actions.
TEST(UpdateTest, StandstillNamesTheExchange) {
  const Schedule schedule =
      Generate("chimera", ScheduleParams{.ranks = 2, .microbatches = 2}).value();
  std::atomic<bool> release{false};
  const auto inject = [&](int stage, std::int64_t) {
    if (stage == 0) release.wait(false);
    return 1.0;
  };
  std::vector<std::unique_ptr<WeightStage>> owned;
  std::vector<Stage*> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    owned.push_back(std::make_unique<WeightStage>(schedule, stage, inject));
    stages.push_back(owned.back().get());
  }
  RunOptions options = {.watchdog = std::chrono::milliseconds(300)};
  options.on_stuck = [&](const Error&) {
    release.store(true);
    release.notify_all();
  };
  EXPECT_TRUE(Refused(RunRanks(schedule, stages, options),
                      "waits at 2STEP for the gradients of stage 0, from rank 0"));
}

// Early forwards depend only on other early forwards.
TEST(UpdateTest, EarlyForwardsDependOnlyOnEarlyForwards) {
  Random random(23);
  for (int i = 0; i < 100; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const std::vector<std::size_t> ends = FindCheckPoints(schedule).value();
    std::set<std::pair<int, int>> early;
    std::vector<Part> parts;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const Program program = MakeProgram(schedule, rank).value();
      for (std::size_t k = 0; k < ends[rank]; ++k) {
        EXPECT_EQ(program[k].part.op, Op::kForward);
        parts.push_back(program[k].part);
        early.insert({program[k].part.stage, program[k].part.microbatch});
      }
    }
    EXPECT_FALSE(parts.empty());
    for (const Part& part : parts) {
      ForEachDependency(ChainShape::Of(schedule), part, [&](const Value& value) {
        EXPECT_TRUE(early.contains({value.stage, value.microbatch}));
      });
    }
  }
}

}  // namespace
}  // namespace penstock
