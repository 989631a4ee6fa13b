// The time of a step when steps follow each other.
#include "simulate/steady_state.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/passes/passes.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

constexpr double kAbout = 1 + 1e-9;

double SteadyOf(const Schedule& schedule, const Costs& costs, int count = 6) {
  return SteadyStepTime(Repeated(schedule, count), costs).value();
}

// A step takes at least the work of the busiest rank and at most the makespan.
TEST(SteadyState, LiesBetweenWorkAndMakespan) {
  std::mt19937 random(5);
  for (const Algorithm& algorithm : Catalog()) {
    for (int i = 0, found = 0; i < 100 && found < Cases(5); ++i) {
      const ScheduleParams params = DrawParams(algorithm, random);
      const auto schedule = Generate(algorithm.name, params);
      if (!schedule || schedule->weights != WeightPolicy::kFlush) continue;
      ++found;
      const Costs costs = CostsFor(*schedule, params);
      const SimulationResult once = Simulate(*schedule, costs).value();
      double work = 0;
      for (const RankResult& rank : once.ranks) work = std::max(work, rank.busy);
      const double steady = SteadyOf(*schedule, costs);
      EXPECT_GE(steady * kAbout, work) << algorithm.name;
      EXPECT_LE(steady, once.makespan * kAbout) << algorithm.name;
      EXPECT_EQ(Simulate(Repeated(*schedule, 3), costs)->actions, 3 * once.actions);
    }
  }
}

// Then the steps follow each other like single ones.
TEST(SteadyState, ABarrierSeparatesSteps) {
  for (const char* const algorithm : {"1f1b", "interleaved", "zb-h2", "zbv", "gpipe"}) {
    const ScheduleParams params = Sized(4, 12);
    Schedule schedule = Generate(algorithm, params).value();
    Costs costs = CostsFor(schedule, params);
    for (StageCosts& stage : costs.stages) stage.step = 0.5;
    costs.steps_wait_for_all = true;
    schedule = AddOptimizer(schedule, {.post_validation = false}).value();
    EXPECT_NEAR(SteadyOf(schedule, costs), Simulate(schedule, costs)->makespan, 1e-9) << algorithm;
  }
}

TEST(SteadyState, WithoutABarrierTheFillOverlapsWithTheDrain) {
  const ScheduleParams params = Sized(4, 16);
  const Schedule zb_h2 = Generate("zb-h2", params).value();
  EXPECT_NEAR(SteadyOf(zb_h2, CostsFor(zb_h2, params)), 48, 1e-9);
  const Schedule one_f_one_b = Generate("1f1b", params).value();
  EXPECT_NEAR(SteadyOf(one_f_one_b, CostsFor(one_f_one_b, params)), 57, 1e-9);
}

TEST(SteadyState, SchedulesWithoutAFlushHoldTheirSteps) {
  for (const char* const algorithm : {"pipedream", "pipedream-2bw"}) {
    ScheduleParams params = {.ranks = 4, .microbatches = 16, .steps = 8};
    const Schedule schedule = Generate(algorithm, params).value();
    EXPECT_NEAR(SteadyOf(schedule, CostsFor(schedule, params), 1), 48, 1e-9) << algorithm;
  }
}

}  // namespace
}  // namespace penstock::testing
