#include "train/run/results.h"

#include <gtest/gtest.h>

#include "schedule/catalog.h"
#include "tests/engine/runtime/write_round.h"

namespace penstock {
namespace {

// The forwards of GPipe precede all backwards, so post-validation runs all of them twice.
TEST(Results, ThePredictionCountsForwardsThatARolledBackStepRepeats) {
  const Schedule schedule = Generate("gpipe", {.ranks = 3, .microbatches = 4}).value();
  Timeline timeline;
  ASSERT_TRUE(
      Simulate(schedule, Costs::Uniform(schedule.placement, 1, 1, 1, 1), {.timeline = &timeline}));
  Trace trace = Trace::Make(schedule).value();
  for (int round = 0; round < 4; ++round) WriteRound(trace, round, timeline);
  const auto kept = Compare(trace, false, false);
  const auto rolled_back = Compare(trace, false, true);
  ASSERT_TRUE(kept && rolled_back);
  EXPECT_NEAR(rolled_back->predicted_step_time - kept->predicted_step_time, 6, 1e-6);
}

}  // namespace
}  // namespace penstock
