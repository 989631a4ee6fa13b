#include "monitor/run_status.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/monitor/make_metrics.h"

namespace penstock {
namespace {

constexpr RunSigns kAlive = {.has_process = true, .locked = 100, .changed = 200, .now = 203};
constexpr RunSigns kDead = {.changed = 200, .now = 203};

TEST(RunStatus, HasTheFiguresOfTheLastSteps) {
  const auto metrics = MadeSteps(60, {0.3, 0.4});
  const RunStatus status = StatusOf(MadeRun("a", 100), metrics, kAlive);
  EXPECT_EQ(status.state, RunState::kRunning);
  EXPECT_EQ(status.done, 60);
  EXPECT_NEAR(status.loss.value(), 4 - 0.01 * 49.5, 1e-9);  // steps 40 to 59
  EXPECT_NEAR(status.earlier_loss.value(), 4 - 0.01 * 29.5, 1e-9);
  EXPECT_NEAR(status.tokens_per_second, 2000, 1e-6);
  EXPECT_NEAR(status.seconds_left.value(), 20, 1e-6);
  EXPECT_NEAR(status.age.value(), 3, 1e-6);
  EXPECT_FALSE(status.stalled);
  ASSERT_EQ(status.ranks.size(), 2U);
  EXPECT_EQ(status.ranks[1].busy, 0.4);
  EXPECT_NEAR(status.ranks[1].bubble, 0.2, 1e-9);
  EXPECT_EQ(status.ranks[1].peak_activation_bytes, 1 << 20);
}

TEST(RunStatus, LossesThatAreNotFiniteDoNotCount) {
  auto metrics = MadeSteps(3, {});
  metrics[1].loss = std::numeric_limits<double>::quiet_NaN();
  metrics[1].skipped = true;
  const RunStatus status = StatusOf(MadeRun("a", 100), metrics, kAlive);
  EXPECT_NEAR(status.loss.value(), 3.99, 1e-9);
  EXPECT_EQ(status.skipped, 1);
  for (StepMetric& metric : metrics) metric.loss = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(StatusOf(MadeRun("a", 100), metrics, kAlive).loss);
}

TEST(RunStatus, StateFollowsFromStepsAndProcess) {
  const auto state = [](std::int64_t steps, std::int64_t done, const RunSigns& signs) {
    return StatusOf(MadeRun("a", steps), MadeSteps(done, {}), signs).state;
  };
  EXPECT_EQ(state(10, 0, kAlive), RunState::kStarting);
  EXPECT_EQ(state(10, 3, kAlive), RunState::kRunning);
  EXPECT_EQ(state(10, 3, kDead), RunState::kStopped);
  EXPECT_EQ(state(10, 0, kDead), RunState::kStopped);
  EXPECT_EQ(state(10, 10, kAlive), RunState::kFinished);
  EXPECT_EQ(state(10, 10, kDead), RunState::kFinished);
  // It stopped early: its weights are newer than its last line.
  EXPECT_EQ(state(10, 3, {.changed = 200, .now = 203, .weights = 201}), RunState::kFinished);
  EXPECT_EQ(state(10, 3, {.changed = 200, .now = 203, .weights = 100}), RunState::kStopped);
  // The metrics belong to an earlier run in the same folder.
  EXPECT_EQ(state(10, 10, {.has_process = true, .locked = 201, .changed = 200, .now = 203}),
            RunState::kStarting);
}

TEST(RunStatus, ARunWithATimeLimitEndsBeforeItsLargestStep) {
  RunDescription run = MadeRun("a", 1000000);
  run.seconds = 30;
  const auto metrics = MadeSteps(40, {});  // 20 seconds
  const RunStatus running = StatusOf(run, metrics, kAlive);
  EXPECT_EQ(running.state, RunState::kRunning);
  EXPECT_NEAR(running.seconds_left.value(), 10, 1e-6);
  EXPECT_EQ(StatusOf(run, metrics, kDead).state, RunState::kFinished);
}

TEST(RunStatus, ARunWithoutANewLineForLongIsStalled) {
  const auto metrics = MadeSteps(40, {});
  RunSigns signs = kAlive;
  signs.now = 211;
  EXPECT_TRUE(StatusOf(MadeRun("a", 100), metrics, signs).stalled);
  EXPECT_FALSE(StatusOf(MadeRun("a", 40), metrics, signs).stalled);  // finished
}

TEST(RunStatus, AfterAResumeWithOtherRanksOnlyTheirStepsCount) {
  auto metrics = MadeSteps(40, {0.1, 0.1, 0.1, 0.1});
  for (int step = 40; step < 43; ++step) metrics.push_back(MadeStep(step, {0.2, 0.3}));
  const RunStatus status = StatusOf(MadeRun("a", 100), metrics, kAlive);
  ASSERT_EQ(status.ranks.size(), 2U);
  EXPECT_EQ(status.ranks[0].busy, 0.2);
  // Older versions of the program wrote no figures of ranks.
  metrics.push_back(MadeStep(43, {}));
  EXPECT_TRUE(StatusOf(MadeRun("a", 100), metrics, kAlive).ranks.empty());
}

}  // namespace
}  // namespace penstock
