// Squeezing in the order of the lanes, which searches use to price a schedule, agrees with the
// simulator for any costs.
#include "schedule/search/squeeze.h"

#include <gtest/gtest.h>

#include "simulate/simulate.h"
#include "tests/results.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock {
namespace {

SqueezeOptions InOrder() { return {.window = 1}; }

TEST(Squeezer, InOrderMatchesTheSimulator) {
  for (const auto* name : {"zb-h1", "zbv", "v-half", "v-min"}) {
    const Schedule schedule = testing::Make(name, {5, 0, 13});
    Costs costs = Costs::Uniform(schedule.placement, 1, 7, 5, 9, 2);
    costs.stages[3].forward *= 1.7;
    const Problem problem = {schedule.placement, costs, 13, 1, true, kNever};
    Squeezer squeezer(problem);
    const double makespan = squeezer.Run(schedule.lanes, InOrder());
    const auto result = ValueOf(Simulate(schedule, costs));
    EXPECT_DOUBLE_EQ(makespan, result.makespan) << name;
    EXPECT_DOUBLE_EQ(squeezer.peak_memory(), result.peak_memory) << name;
    EXPECT_EQ(squeezer.lanes(), schedule.lanes) << name;
  }
}

TEST(Squeezer, InOrderReportsADeadlock) {
  Schedule schedule = testing::Make("zb-h1", {2, 0, 2});
  std::swap(schedule.lanes[0][0], schedule.lanes[0][2]);  // F0 after I0
  const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1, 0);
  Squeezer squeezer({schedule.placement, costs, 2, 1, true, kNever});
  EXPECT_EQ(squeezer.Run(schedule.lanes, InOrder()), kNever);
}

}  // namespace
}  // namespace penstock
