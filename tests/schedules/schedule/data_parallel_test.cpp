#include "schedule/data_parallel.h"

#include <gtest/gtest.h>

#include "simulate/simulate.h"
#include "tests/schedules/schedule/random_catalog.h"

namespace penstock::testing {
namespace {

Costs UnitCosts(const Schedule& schedule) {
  return Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1, 0.25);
}

TEST(DataParallel, ReplicasOfEveryScheduleAreValidAndAsFastAsOne) {
  std::mt19937 random(5);
  for (const Schedule& schedule : DrawCatalog(4, random)) {
    if (schedule.weights != WeightPolicy::kFlush) continue;
    SCOPED_TRACE(Name(schedule));
    const int data = 2 + static_cast<int>(random() % 3);
    const Schedule replicated = AddDataParallelism(schedule, data).value();
    EXPECT_EQ(FirstFault(replicated), "");
    EXPECT_EQ(replicated.ranks(), data * schedule.ranks());
    EXPECT_EQ(replicated.microbatches, data * schedule.microbatches);
    EXPECT_EQ(replicated.indices(), schedule.indices());
    EXPECT_EQ(replicated.placement.chain_length(), schedule.placement.chain_length());
    const SimulationResult one = Simulate(schedule, UnitCosts(schedule)).value();
    const SimulationResult all = Simulate(replicated, UnitCosts(replicated)).value();
    EXPECT_EQ(all.makespan, one.makespan);
    for (int rank = 0; rank < replicated.ranks(); ++rank) {
      const auto& original = one.ranks[rank % schedule.ranks()];
      EXPECT_EQ(all.ranks[rank].busy, original.busy);
      EXPECT_EQ(all.ranks[rank].last_end, original.last_end);
      EXPECT_EQ(all.ranks[rank].peak_memory, original.peak_memory);
    }
  }
}

TEST(DataParallel, ReplicasRunTheSameLanesOnStagesOfTheirOwn) {
  const Schedule schedule = Make("dualpipe", {4, 1, 8});
  const Schedule replicated = AddDataParallelism(schedule, 3).value();
  EXPECT_EQ(replicated.placement.replicas(), 6);
  for (int rank = 0; rank < replicated.ranks(); ++rank) {
    const Lane& original = schedule.lanes[rank % 4];
    const Lane& lane = replicated.lanes[rank];
    ASSERT_EQ(lane.size(), original.size());
    const int shift = rank / 4 * schedule.stages();
    for (std::size_t i = 0; i < lane.size(); ++i) {
      EXPECT_EQ(lane[i].first.stage, original[i].first.stage + shift);
      EXPECT_EQ(lane[i].is_pair(), original[i].is_pair());
      if (lane[i].is_pair()) {
        EXPECT_EQ(lane[i].second.stage, original[i].second.stage + shift);
      }
      EXPECT_EQ(lane[i].first.microbatch, original[i].first.microbatch);
    }
  }
}

TEST(DataParallel, RefusesWhatHasNoReplicas) {
  const Schedule schedule = Make("1f1b", {4, 1, 8});
  EXPECT_EQ(AddDataParallelism(schedule, 0).error().line(),
            "0 data-parallel replicas: at least 1 is needed");
  EXPECT_EQ(AddDataParallelism(schedule, 20000).error().line(),
            "20000 replicas of 4 stages are more than 65536 stages");
  ScheduleParams params = {.ranks = 2, .chunks = 1, .microbatches = 4, .steps = 2};
  EXPECT_EQ(AddDataParallelism(Generate("pipedream", params).value(), 2).error().line(),
            "schedule 'pipedream' does not flush, so its replicas would update their weights at "
            "different times: use a schedule that flushes, or one replica");
}

}  // namespace
}  // namespace penstock::testing
