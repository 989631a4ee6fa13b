#include "schedule/search/swap_search.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/search/list_scheduler.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/validate/validate.h"
#include "tests/schedules/schedule/draw.h"

namespace penstock::testing {
namespace {

constexpr double kRounded = 1e-9;

TEST(SwapSearchTest, ResultsAreValidWithinTheMemoryAndNotLonger) {
  std::mt19937 rng(1);
  int shorter = 0;
  for (int round = 0; round < 200; ++round) {
    const int ranks = Draw(rng, 1, 5), chunks = Draw(rng, 1, 3), microbatches = Draw(rng, 1, 8);
    Schedule schedule;
    schedule.placement =
        Draw(rng, 0, 1) == 0 ? Placement::Looped(ranks, chunks) : Placement::Zigzag(ranks, chunks);
    schedule.microbatches = microbatches;
    const Costs costs =
        Costs::Uniform(schedule.placement, 1, Draw(rng, 1, 3), Draw(rng, 1, 3), Draw(rng, 0, 3),
                       0.25 * Draw(rng, 0, 3), 0.25 * Draw(rng, 0, 4));
    const Problem problem = {
        schedule.placement, costs, microbatches, 1, true, Draw(rng, 2, 2 * ranks + 2) / 2.0};
    ListScheduler scheduler(problem);
    const double before = scheduler.Run(ListRule::BackwardFirst(schedule.placement, microbatches));
    SwapSearch search(problem);
    schedule.lanes = search.Run(scheduler.lanes(), 100, 100, 0);
    ASSERT_TRUE(Validate(schedule).empty());
    const LanePrice price = PriceLanes(problem, schedule.lanes);
    ASSERT_NEAR(price.makespan, search.makespan(), before * kRounded);
    ASSERT_LE(price.makespan, before * (1 + kRounded));
    ASSERT_LE(price.peak_memory, problem.memory_limit * (1 + kRounded));
    shorter += price.makespan < before * (1 - kRounded);
  }
  EXPECT_GT(shorter, 20);
}

}  // namespace
}  // namespace penstock::testing
