// What moved between two runs, and where the time went.
#include "explain/difference.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/index.h"
#include "schedule/catalog.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct TimedSchedule {
  Schedule schedule = {};
  Timeline timeline = {};
  std::vector<std::vector<Bubble>> bubbles = {};
  double makespan = 0;

  ExplainedRun run() const { return {schedule, timeline, bubbles}; }
};

TimedSchedule TimesOf(const char* name, double comm = 0) {
  TimedSchedule timed = {.schedule = Generate(name, {.ranks = 4, .microbatches = 8}).value()};
  Costs costs = Costs::Uniform(timed.schedule.placement, timed.schedule.slices, 1, 1, 1, comm);
  timed.makespan = Simulate(timed.schedule, costs, {.timeline = &timed.timeline})->makespan;
  const ActionInputs inputs(timed.schedule, timed.timeline, {});
  timed.bubbles = FindBubbles(timed.schedule, timed.timeline, inputs);
  return timed;
}

TEST(Difference, ARunEqualsItself) {
  const TimedSchedule run = TimesOf("zbv");
  const Difference difference = Compare(run.run(), run.run());
  EXPECT_EQ(difference.common.size(), 4u * 2 * 8 * 3);
  EXPECT_EQ(difference.reordered, 0u);
  EXPECT_EQ(difference.other_rank, 0u);
  for (const Moved& moved : difference.common) EXPECT_EQ(moved.start_a, moved.start_b);
}

TEST(Difference, BusyAndIdleTimesAddUpToTheMakespan) {
  for (const char* name : {"1f1b", "zbv", "dualpipev", "interleaved", "gpipe"}) {
    const TimedSchedule run = TimesOf(name, 0.25);
    const TimeUse use = TimeUseOf(run.run());
    const double busy = std::accumulate(use.by_op.begin(), use.by_op.end(), 0.0);
    const double idle = std::accumulate(use.bubbles.begin(), use.bubbles.end(), 0.0);
    EXPECT_NEAR(busy + idle, run.makespan, 1e-9) << name;
  }
}

TEST(Difference, CountsWhatOnlyOneRunHas) {
  const TimedSchedule whole = TimesOf("1f1b"), split = TimesOf("zb-h1");
  const Difference difference = Compare(whole.run(), split.run());
  EXPECT_EQ(difference.common.size(), 32u);  // forwards
  EXPECT_EQ(difference.only_a[Index(Op::kBackward)], 32u);
  EXPECT_EQ(difference.only_b[Index(Op::kBackwardInput)], 32u);
  EXPECT_EQ(difference.only_b[Index(Op::kBackwardWeight)], 32u);
  EXPECT_GT(difference.a.bubbles[Index(BubbleCause::kDrain)],
            difference.b.bubbles[Index(BubbleCause::kDrain)]);
}

TEST(Difference, ListsTheFarthestMovesFirst) {
  const TimedSchedule a = TimesOf("gpipe"), b = TimesOf("1f1b");
  const Difference difference = Compare(a.run(), b.run());
  EXPECT_GT(difference.reordered, 0u);
  double last = 1e9;
  for (const Moved& moved : difference.common) {
    const double by = std::abs(moved.start_b - moved.start_a);
    EXPECT_LE(by, last);
    last = by;
  }
  EXPECT_GT(std::abs(difference.common[0].start_b - difference.common[0].start_a), 5);
}

}  // namespace
}  // namespace penstock
