#include "runtime/measure/drift.h"

#include <gtest/gtest.h>

#include "simulate/simulate.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/engine/runtime/write_round.h"

namespace penstock {
namespace {

struct Planned {
  Planned() : schedule(SmallGpipe(3, 4)), costs(Costs::Uniform(schedule.placement, 1, 1, 1, 1)) {
    EXPECT_TRUE(Simulate(schedule, costs, {.timeline = &timeline}));
  }

  Schedule schedule;
  Costs costs;
  Timeline timeline;
};

TEST(DriftTest, RunThatMatchesItsPlanHasNoDrift) {
  Planned planned;
  Trace trace = Trace::Make(planned.schedule).value();
  WriteRound(trace, 0, planned.timeline);
  const Drift drift = FindDrift(trace, planned.costs);
  EXPECT_FALSE(drift.slowest);
  EXPECT_EQ(drift.straggler, -1);
  EXPECT_EQ(DriftText(drift), "no action took longer than planned");
}

TEST(DriftTest, NamesTheActionRankAndStep) {
  Planned planned;
  Trace trace = Trace::Make(planned.schedule).value();
  WriteRound(trace, 0, planned.timeline);
  // In step 1 one action of rank 2 takes 3 s longer and two of rank 1 take 2 s longer each.
  Timeline late = planned.timeline;
  late.spans[2][5].end += 3;
  late.spans[1][6].end += 2;
  late.spans[1][7].end += 2;
  WriteRound(trace, 1, late);
  const Drift drift = FindDrift(trace, planned.costs);
  ASSERT_TRUE(drift.slowest);
  EXPECT_EQ(drift.slowest->rank, 2);
  EXPECT_EQ(drift.slowest->step, 1);
  EXPECT_EQ(drift.slowest->action, Backward(2, 2));
  EXPECT_DOUBLE_EQ(drift.slowest->took, 5);
  EXPECT_EQ(drift.straggler, 1);
  EXPECT_DOUBLE_EQ(drift.ranks[1].took - drift.ranks[1].planned, 4);
  EXPECT_EQ(DriftText(drift, 10),
            "furthest from the plan: 2B2 on rank 2 took 5.0 s in step 11, 2.0 s planned; "
            "straggling rank: 1, busy 28.0 s for 24.0 s planned");
  EXPECT_EQ(FindDrift(trace, planned.costs, 1).slowest->step, 1);
}

TEST(DriftTest, PairCountsAsOneAction) {
  Schedule schedule;
  schedule.placement = Placement::Linear(1);
  schedule.microbatches = 2;
  schedule.lanes = {{Forward(0, 0), Overlap(Forward(0, 1), Backward(0, 0)), Backward(0, 1)}};
  const Costs costs = Costs::Uniform(schedule.placement, 1, 2, 1, 2);
  Trace trace = Trace::Make(schedule).value();
  WriteRound(trace, 0, {{{{0, 2}, {2, 6}, {6, 9}}}});
  const Drift drift = FindDrift(trace, costs);
  ASSERT_TRUE(drift.slowest);
  EXPECT_EQ(drift.slowest->action, schedule.lanes[0][1]);
  EXPECT_DOUBLE_EQ(drift.slowest->planned, 3);
  EXPECT_DOUBLE_EQ(drift.ranks[0].took, 9);
}

}  // namespace
}  // namespace penstock
