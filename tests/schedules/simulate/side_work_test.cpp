// The time and memory of actions that passes add: transfers concurrent with compute, RECOMPUTE and
// STEP.
#include "simulate/side_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "schedule/passes/pass_table.h"
#include "schedule/text/text.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "simulate/summary.h"
#include "tests/results.h"
#include "tests/schedules/simulate/random_schedule.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock {
namespace {

TEST(SideWork, OffloadsRunOneAtATimeDuringComputeAndFreeAtTheirEnd) {
  const Schedule schedule = Read("0F0,0OFFLOAD0,0F1,0OFFLOAD1,0F2,0B2,0RELOAD1,0B1,0RELOAD0,0B0\n");
  Costs costs = Uniform(schedule);
  costs.offload = 1.5;
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  const auto& spans = run.timeline.spans[0];
  EXPECT_EQ(spans[1].start, 1);
  EXPECT_EQ(spans[1].end, 2.5);
  EXPECT_EQ(spans[2].start, 1) << "compute continues";
  EXPECT_EQ(spans[3].start, 2.5) << "the link is busy until then";
  EXPECT_EQ(spans[3].end, 4);
  EXPECT_EQ(run.result.makespan, 9) << "reloads take no time";
  // At 5 and at 7 one microbatch is freed and another one reloaded.
  EXPECT_EQ(run.result.peak_memory, 3);
  const MemoryCurve curve = MemoryOverTime(schedule, run.timeline, costs, 0);
  const std::vector<double> amounts = {1, 2, 3, 2, 1, 1, 1, 0};
  ASSERT_EQ(curve.size(), amounts.size());
  for (std::size_t i = 0; i < curve.size(); ++i) EXPECT_EQ(curve[i].amount, amounts[i]) << i;
}

TEST(SideWork, ReloadAllocatesAtItsStartAndItsReaderWaits) {
  const Schedule schedule = Read("0F0,0OFFLOAD0,0F1,0B1,0RELOAD0,0B0\n");
  Costs costs = Uniform(schedule);
  costs.offload = 1;
  costs.reload = 3;
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  EXPECT_EQ(run.timeline.spans[0][5].start, 7) << "four units of compute and three of transfer";
  EXPECT_EQ(run.result.makespan, 9);
  EXPECT_EQ(run.result.ranks[0].busy, 6);
  const Schedule early = Read("0F0,0OFFLOAD0,0F1,0RELOAD0,0B1,0B0\n");
  EXPECT_EQ(TimelineOf(early, costs).spans[0][5].start, 5);
  const Schedule at_once = Read("0F0,0OFFLOAD0,0RELOAD0,0F1,0B1,0B0\n");
  EXPECT_EQ(TimelineOf(at_once, costs).spans[0][2].start, 2) << "once it is offloaded";
}

TEST(SideWork, RecomputeOccupiesTheRankAndFKeepsItsInput) {
  const Schedule schedule = Read("0F0,0F1,0RECOMPUTE1,0B1,0RECOMPUTE0,0B0\n");
  Costs costs = Uniform(schedule);
  costs.stages[0].input_activation = 0.25;
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  EXPECT_EQ(run.result.makespan, 8);
  EXPECT_EQ(run.result.ranks[0].busy, 8);
  EXPECT_EQ(run.result.peak_memory, 1.25) << "one whole and one input";
  EXPECT_EQ(run.result.actions, 4U) << "compute actions";
}

TEST(SideWork, RecomputeRunsWhileTheGradientIsInFlight) {
  const Schedule schedule = Read("0F0,0RECOMPUTE0,0B0\n1F0,1B0\n");
  EXPECT_EQ(SimulateWithTimes(schedule, Uniform(schedule)).result.makespan, 6) << "as without";
}

TEST(SideWork, ComputeWaitsForTheUnshardedWeights) {
  const Schedule schedule =
      Read("0UNSHARD,1UNSHARD,0F0,0RESHARD,1F0,1B0,1RESHARD,0UNSHARD,0B0,0RESHARD\n");
  Costs costs = Uniform(schedule);
  for (StageCosts& stage : costs.stages) {
    stage.unshard = 2;
    stage.gathered = 4;
  }
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  const auto& spans = run.timeline.spans[0];
  EXPECT_EQ(spans[0].end, 2);
  EXPECT_EQ(spans[1].start, 2) << "one collective at a time";
  EXPECT_EQ(spans[2].start, 2);
  EXPECT_EQ(spans[4].start, 4);
  EXPECT_EQ(run.result.peak_memory, 4 + 4 + 0.5) << "both stages' weights and one's activations";
}

TEST(SideWork, StepWaitsForItsReducedGradients) {
  const Schedule one = Read("0F0,0B0,0REDUCE_GRAD,0STEP\n");
  Costs costs = Uniform(one);
  costs.stages[0].reduce = 5;
  costs.stages[0].step = 0.5;
  const TimedSimulation run = SimulateWithTimes(one, costs);
  EXPECT_EQ(run.timeline.spans[0][3].start, 8);
  EXPECT_EQ(run.result.makespan, 8.5);
  EXPECT_EQ(run.result.ranks[0].busy, 3.5);
}

TEST(SideWork, TheLastReductionEndsTheMakespan) {
  const Schedule schedule = Read("0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n");
  Costs costs = Uniform(schedule);
  costs.stages[0].reduce = 1;
  costs.stages[1].reduce = 5;
  for (const Transfers transfers : {Transfers::kAsynchronous, Transfers::kBatched}) {
    costs.transfers = transfers;
    const TimedSimulation run = SimulateWithTimes(schedule, costs);
    EXPECT_EQ(run.result.makespan, 9) << "after 4 units of compute on the second rank";
    EXPECT_EQ(run.result.ranks[0].last_end, 7);
    EXPECT_EQ(run.result.ranks[1].last_end, 9);
    EXPECT_EQ(run.result.bubble, 1 - 3.0 / 9);
    EXPECT_EQ(Summarize(schedule, run.timeline).makespan, 9);
  }
}

TEST(SideWork, WithoutPostValidationEveryStepWaitsForTheLastGradient) {
  const Schedule schedule = Read("0F0,0B0,0STEP\n1F0,1B0,1STEP\n");
  Costs costs = Uniform(schedule);
  for (StageCosts& stage : costs.stages) stage.step = 1;
  EXPECT_EQ(TimelineOf(schedule, costs).spans[1][2].start, 4) << "its own gradient";
  costs.steps_wait_for_all = true;
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  EXPECT_EQ(run.timeline.spans[1][2].start, 6);
  EXPECT_EQ(run.timeline.spans[0][2].start, 6);
  EXPECT_EQ(run.result.makespan, 7);
}

TEST(SideWork, ReplicasStepWhenBothHaveTheirGradients) {
  // Stage 2 on rank 1 is the replica of stage 0 on rank 0.
  const CsvOptions replicas = {.replicas = 2};
  const Schedule schedule =
      Read("0F0,3F0,3B0,0B0,0STEP,3STEP\n2F0,1F0,1B0,2B0,2STEP,1STEP\n", replicas);
  Costs costs = Uniform(schedule);
  costs.stages[2].backward_input = 4;
  const TimedSimulation run = SimulateWithTimes(schedule, costs);
  EXPECT_EQ(run.timeline.spans[0][4].start, run.timeline.spans[1][3].end);
  const Schedule stuck =
      Read("0F0,3F0,3B0,0B0,0STEP,3STEP\n1STEP,2F0,1F0,1B0,2B0,2STEP\n", replicas);
  EXPECT_TRUE(Refused(Simulate(stuck, costs), "1STEP waits for the gradients"));
}

TEST(SideWork, ActionsWithoutCostChangeNothing) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    RandomShape shape = {.placement = RandomPlacement(random)};
    shape.microbatches = static_cast<int>(1 + random() % 4) * shape.placement.replicas();
    shape.communication = random() % 2 == 0;
    const Schedule plain = RandomSchedule(shape, random);
    const Costs costs = RandomCosts(shape.placement, random);
    const std::vector<std::string> passes = {"sharding", "optimizer"};
    const auto changed = ValueOf(RunSchedulePasses(plain, passes, SimulatedContext(costs)));
    const SimulationResult before = SimulateWithTimes(plain, costs).result;
    const SimulationResult after = SimulateWithTimes(changed, costs).result;
    EXPECT_EQ(before.makespan, after.makespan);
    EXPECT_EQ(before.peak_memory, after.peak_memory);
    EXPECT_EQ(before.actions, after.actions);
  }
}

// The peak that the simulator tracks equals the peak of all changes sorted by time, and busy times
// equal the spans' sums.
TEST(SideWork, PeakAndTimelineAgree) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    RandomShape shape = {.placement = RandomPlacement(random)};
    shape.microbatches = static_cast<int>(1 + random() % 5) * shape.placement.replicas();
    const Schedule plain = RandomSchedule(shape, random);
    Costs costs = RandomCosts(shape.placement, random);
    for (StageCosts& stage : costs.stages) {
      stage.input_activation = stage.activation * 0.25;
      stage.recompute = 0.5 + stage.forward;
      stage.unshard = stage.reduce = static_cast<double>(random() % 3);
      stage.gathered = static_cast<double>(random() % 2);
      stage.step = static_cast<double>(random() % 3);
      // Without zero times, two changes of a rank coincide only at the end of one action.
      stage.forward += 0.125;
      stage.backward_input += 0.125;
      stage.backward_weight += 0.125;
    }
    costs.offload = costs.reload = 0.25 * static_cast<double>(random() % 8);
    std::vector<std::string> passes = {"recompute", "offload", "sharding", "optimizer"};
    std::shuffle(passes.begin(), passes.end(), random);
    passes.resize(random() % 4 + 1);
    const auto changed = ValueOf(RunSchedulePasses(plain, passes, SimulatedContext(costs)));
    const TimedSimulation run = SimulateWithTimes(changed, costs);
    const SimulationResult summary = Summarize(changed, run.timeline);
    EXPECT_EQ(summary.makespan, run.result.makespan);
    for (int rank = 0; rank < changed.ranks(); ++rank) {
      const std::size_t r = rank;
      double peak = 0;
      for (const MemoryPoint& point : MemoryOverTime(changed, run.timeline, costs, rank)) {
        peak = std::max(peak, point.amount);
      }
      EXPECT_NEAR(peak, run.result.ranks[r].peak_memory, 1e-9) << WriteCsv(changed);
      EXPECT_NEAR(summary.ranks[r].busy, run.result.ranks[r].busy, 1e-9);
    }
  }
}

TEST(SideWork, RefusesCostsThatAreNotFinite) {
  const Schedule schedule = Read("0F0,0B0\n");
  for (double StageCosts::*field :
       {&StageCosts::recompute, &StageCosts::input_activation, &StageCosts::step,
        &StageCosts::unshard, &StageCosts::reduce, &StageCosts::gathered}) {
    Costs costs = Uniform(schedule);
    costs.stages[0].*field = -1;
    EXPECT_FALSE(Simulate(schedule, costs));
  }
  Costs costs = Uniform(schedule);
  costs.offload = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Simulate(schedule, costs));
}

}  // namespace
}  // namespace penstock
