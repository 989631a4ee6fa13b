#include "runtime/measure/trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/executor/run.h"
#include "schedule/passes/passes.h"
#include "simulate/simulate.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/engine/runtime/write_round.h"

namespace penstock {
namespace {

Status RunTraced(const Schedule& schedule, Trace& trace, int steps,
                 const ProbeStage::Hook& hook = nullptr) {
  Probes probes(schedule, hook);
  return RunRanks(schedule, probes.stages, {.steps = steps, .trace = &trace});
}

TEST(TraceTest, KeepsTheLastSteps) {
  const Schedule schedule = SmallGpipe(2, 2);
  Trace trace = Trace::Make(schedule, 3).value();
  EXPECT_EQ(trace.last_round(), 0);
  ASSERT_TRUE(RunTraced(schedule, trace, 8));
  EXPECT_EQ(trace.first_round(), 5);
  EXPECT_EQ(trace.last_round(), 8);
  EXPECT_FALSE(Trace::Make(schedule, 0));
}

// The actions of a rank run one at a time, in the order of its lane, and none ends before the
// producers of its inputs have started. (A stage may send before its action ends.)
TEST(TraceTest, TimelineRespectsLanesAndDependencies) {
  Random random(21);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = AddCommunication(RandomSchedule(random));
    Trace trace = Trace::Make(schedule).value();
    ASSERT_TRUE(RunTraced(schedule, trace, 2));
    const Timeline timeline = MeasuredTimeline(trace, 1);
    ASSERT_EQ(static_cast<int>(timeline.spans.size()), schedule.ranks());
    std::vector<double> produced(MessageMap(schedule).slots());
    const MessageMap messages(schedule);
    for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
      ASSERT_EQ(timeline.spans[rank].size(), schedule.lanes[rank].size());
      double previous_end = 0;
      for (std::size_t k = 0; k < timeline.spans[rank].size(); ++k) {
        const Span& span = timeline.spans[rank][k];
        EXPECT_GE(span.start, previous_end);
        EXPECT_GE(span.end, span.start);
        previous_end = span.end;
        ForEachPart(schedule.lanes[rank][k], [&](const Part& part) {
          const int slot = IsCompute(part.op) ? messages.OutSlot(part) : -1;
          if (slot >= 0) produced[slot] = span.start;
        });
      }
    }
    for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
      for (std::size_t k = 0; k < timeline.spans[rank].size(); ++k) {
        ForEachPart(schedule.lanes[rank][k], [&](const Part& part) {
          const int slot = IsCompute(part.op) ? messages.InSlot(part) : -1;
          if (slot >= 0) {
            EXPECT_GE(timeline.spans[rank][k].end, produced[slot]);
          }
        });
      }
    }
  }
}

TEST(TraceTest, WaitsAreNotPartOfActions) {
  // Rank 1 waits for the long forward of rank 0.
  const Schedule schedule = SmallGpipe(2, 1);
  Trace trace = Trace::Make(schedule).value();
  constexpr double kLong = 0.02;
  ASSERT_TRUE(RunTraced(schedule, trace, 1, [kLong](const Part& part, std::int64_t) {
    if (part == Forward(0, 0).first) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kLong));
    }
  }));
  const RunMeasure run = MeasureRound(trace, 0);
  EXPECT_GE(run.makespan, kLong);
  EXPECT_GE(run.ranks[0].busy, kLong);
  EXPECT_LT(run.ranks[1].busy, run.ranks[0].busy);
  EXPECT_GE(run.ranks[1].first_start, kLong);
  EXPECT_GT(run.ranks[1].bubble, run.ranks[0].bubble);
}

TEST(TraceTest, PeakActivationMatchesTheSchedule) {
  const Schedule schedule = SmallGpipe(3, 5);
  Trace trace = Trace::Make(schedule).value();
  ASSERT_TRUE(RunTraced(schedule, trace, 3));
  const RunMeasure run = MeasureRun(trace);
  for (const RankMeasure& rank : run.ranks) EXPECT_EQ(rank.peak_activation_bytes, 5 * 100);
  const Costs costs = MeasuredCosts(trace);
  for (const StageCosts& stage : costs.stages) {
    EXPECT_EQ(stage.activation, 100);
    EXPECT_EQ(stage.activation_after_i, 100);
  }
}

// One stage of a rank frees memory while the other allocates, so only their sum has this peak.
TEST(TraceTest, PeakActivationSumsTheStagesOfARank) {
  Schedule schedule;
  schedule.placement = Placement::FromRanks({0, 0}, 1).value();
  schedule.microbatches = 2;
  schedule.lanes = {{Forward(0, 0), Forward(1, 0), Forward(0, 1), Backward(1, 0), Backward(0, 0),
                     Forward(1, 1), Backward(1, 1), Backward(0, 1)}};
  Trace trace = Trace::Make(schedule).value();
  ASSERT_TRUE(RunTraced(schedule, trace, 2));
  EXPECT_EQ(MeasureRun(trace).ranks[0].peak_activation_bytes, 3 * 100);
}

TEST(TraceTest, FiguresAddUp) {
  Random random(22);
  for (int i = 0; i < 20; ++i) {
    const Schedule schedule = RandomSchedule(random);
    Trace trace = Trace::Make(schedule).value();
    ASSERT_TRUE(RunTraced(schedule, trace, 3));
    const RunMeasure run = MeasureRound(trace, 1);
    double busiest = 0;
    for (const RankMeasure& rank : run.ranks) {
      busiest = std::max(busiest, rank.busy);
      EXPECT_GE(rank.wait, 0);
      EXPECT_LE(rank.busy, rank.last_end - rank.first_start + 1e-12);
      EXPECT_NEAR(rank.bubble, 1 - rank.busy / run.makespan, 1e-12);
    }
    EXPECT_NEAR(run.bubble, 1 - busiest / run.makespan, 1e-12);
    EXPECT_GE(run.step_time, 0);
  }
}

// One rank with two stages. F takes 2 s, B 4 s and a pair 3 s.
TEST(TraceTest, PairCountsOnceAndHoldsBothActivations) {
  Schedule schedule;
  schedule.placement = Placement::FromRanks({0, 0}, 1).value();
  schedule.microbatches = 2;
  schedule.lanes = {{Forward(0, 0), Forward(1, 0), Backward(1, 0),
                     Overlap(Forward(0, 1), Backward(0, 0)), Forward(1, 1), Backward(1, 1),
                     Backward(0, 1)}};
  constexpr std::int64_t kSecond = 1'000'000'000;
  Trace trace = Trace::Make(schedule, 1).value();
  Stamp* stamp = trace.Begin(0, 0);
  const std::vector<Stamp> stamps = {{0, 2, 100},  {2, 4, 50},   {4, 8, 0},   {8, 11, 200},
                                     {8, 11, 100}, {11, 13, 50}, {13, 17, 0}, {17, 21, 0},
                                     {21, 21, 0},  {21, 21, 0}};
  for (const Stamp& each : stamps) {
    *stamp++ = {each.start_ns * kSecond, each.end_ns * kSecond, each.activation_bytes};
  }
  trace.End(0, 0);
  const RankMeasure rank = MeasureRound(trace, 0).ranks[0];
  EXPECT_DOUBLE_EQ(rank.busy, 21);
  EXPECT_DOUBLE_EQ(rank.wait, 0);
  EXPECT_EQ(rank.peak_activation_bytes, 200);
  const Timeline timeline = MeasuredTimeline(trace, 0);
  EXPECT_DOUBLE_EQ(timeline.spans[0][3].start, 8);
  EXPECT_DOUBLE_EQ(timeline.spans[0][3].end, 11);
  const Costs costs = MeasuredCosts(trace);
  EXPECT_DOUBLE_EQ(costs.stages[0].forward, 2);
  EXPECT_DOUBLE_EQ(costs.stages[0].backward_input, 4);
  EXPECT_DOUBLE_EQ(costs.Duration(schedule.lanes[0][3]), 3);
  EXPECT_EQ(costs.stages[0].activation, 100);
}

// Costs -> simulated timeline -> trace -> measured costs.
TEST(TraceTest, RecoversTheCostsOfASimulatedTrace) {
  const Schedule schedule = SmallGpipe(2, 3);
  Costs costs = Costs::Uniform(schedule.placement, 1, 2, 3, 1, 4);
  costs.stages[1].forward = 5;
  Timeline timeline;
  const SimulationResult simulated = Simulate(schedule, costs, {.timeline = &timeline}).value();
  Trace trace = Trace::Make(schedule).value();
  WriteRound(trace, 0, timeline);
  const Costs measured = MeasuredCosts(trace);
  EXPECT_DOUBLE_EQ(measured.stages[0].forward, 2);
  EXPECT_DOUBLE_EQ(measured.stages[1].forward, 5);
  EXPECT_DOUBLE_EQ(measured.stages[0].backward_input, 4);  // B runs whole
  EXPECT_EQ(measured.stages[0].backward_weight, 0);
  EXPECT_DOUBLE_EQ(measured.comm, 4);
  EXPECT_EQ(measured.stages[0].activation, 100);
  EXPECT_DOUBLE_EQ(MeasureRun(trace).makespan, simulated.makespan);
}

// A stage in training sends the input gradient of a B before it computes the weight gradients.
TEST(TraceTest, RecoversWhenABackwardSends) {
  const Schedule schedule = SmallGpipe(3, 4);
  Costs costs = Costs::Uniform(schedule.placement, 1, 2, 3, 1, 4);
  costs.early_gradients = true;
  Timeline timeline;
  const SimulationResult simulated = Simulate(schedule, costs, {.timeline = &timeline}).value();
  Trace trace = Trace::Make(schedule).value();
  WriteRound(trace, 0, timeline, 1);
  const Costs measured = MeasuredCosts(trace);
  EXPECT_TRUE(measured.early_gradients);
  EXPECT_DOUBLE_EQ(measured.stages[1].backward_input, 3);
  EXPECT_DOUBLE_EQ(measured.stages[1].backward_weight, 1);
  EXPECT_DOUBLE_EQ(measured.comm, 4);
  EXPECT_DOUBLE_EQ(Simulate(schedule, measured).value().makespan, simulated.makespan);
}

}  // namespace
}  // namespace penstock
