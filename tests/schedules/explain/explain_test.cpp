// Bubbles and the critical path of every schedule, with random costs, passes and transfers.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/index.h"
#include "explain/bubbles.h"
#include "explain/critical_path.h"
#include "schedule/catalog.h"
#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Explained {
  Schedule schedule = {};
  Costs costs = {};
  Timeline timeline = {};
  std::vector<SentMessage> messages = {};
  SimulationResult result = {};

  std::vector<std::vector<Bubble>> Bubbles(const std::optional<MemoryBound>& bound = {}) const {
    return FindBubbles(schedule, timeline, Inputs(), bound);
  }
  ActionInputs Inputs() const { return {schedule, timeline, messages}; }
};

Explained Simulated(Schedule schedule, Costs costs) {
  Explained run = {.schedule = std::move(schedule), .costs = std::move(costs)};
  const SimulateOptions options{
      .timeline = &run.timeline, .jitter = nullptr, .messages = &run.messages};
  run.result = Simulate(run.schedule, run.costs, options).value();
  return run;
}

Costs RandomTimes(const Placement& placement, int slices, std::mt19937& random) {
  Costs costs = Costs::Uniform(placement, slices, 1, 1, 1);
  const auto draw = [&] { return std::uniform_real_distribution<double>(0.5, 2)(random); };
  for (StageCosts& stage : costs.stages) {
    stage.forward = draw(), stage.backward_input = draw(), stage.backward_weight = draw();
    stage.recompute = stage.forward;
    stage.unshard = draw(), stage.gathered = 1, stage.reduce = draw(), stage.step = draw();
    stage.embed = draw(), stage.vocabulary_input = draw(), stage.vocabulary_weight = draw();
  }
  costs.comm = costs.exchange = draw() / 4;
  costs.offload = costs.reload = draw();
  return costs;
}

std::vector<Explained> ManyRuns() {
  std::mt19937 random(11);
  std::vector<Explained> runs;
  const std::vector<std::vector<std::string>> passes = {
      {},
      {"sharding"},
      {"offload"},
      {"recompute"},
      {"optimizer"},
      {"vocabulary"},
      {"wait-send=1"},
      {"sharding", "wait-send=2", "reduce-grad=wait"}};
  for (const Algorithm& algorithm : Catalog()) {
    const auto schedule = Generate(algorithm.name, {.ranks = 4, .microbatches = 8});
    if (!schedule) continue;
    for (const std::vector<std::string>& each : passes) {
      Costs costs = RandomTimes(schedule->placement, schedule->slices, random);
      auto changed = RunSchedulePasses(*schedule, each, SimulatedContext(costs));
      if (changed) runs.push_back(Simulated(std::move(*changed), std::move(costs)));
    }
  }
  EXPECT_GE(runs.size(), 80u);
  return runs;
}

TEST(Explain, BubblesAreExactlyTheTimesInWhichARankIsIdle) {
  for (const Explained& run : ManyRuns()) {
    const auto bubbles = run.Bubbles();
    for (int rank = 0; rank < run.schedule.ranks(); ++rank) {
      double idle = 0, free = 0;
      for (const Bubble& bubble : bubbles[Index(rank)]) {
        EXPECT_GE(bubble.start, free);
        EXPECT_GT(bubble.end, bubble.start);
        free = bubble.end;
        idle += bubble.end - bubble.start;
      }
      EXPECT_NEAR(idle, run.result.makespan - run.result.ranks[Index(rank)].busy,
                  1e-6 * run.result.makespan)
          << run.schedule.algorithm << " rank " << rank;
      const TimeByCause totals = TotalsOf(bubbles[Index(rank)]);
      EXPECT_NEAR(std::accumulate(totals.begin(), totals.end(), 0.0), idle, 1e-9);
    }
  }
}

// An action starts as soon as the rank is free and its inputs are there, so each bubble ends when
// the last input is.
TEST(Explain, ABubbleEndsWhenWhatItWaitsForIsThere) {
  for (const Explained& run : ManyRuns()) {
    const ActionInputs inputs = run.Inputs();
    for (const std::vector<Bubble>& bubbles : run.Bubbles()) {
      for (const Bubble& bubble : bubbles) {
        if (!bubble.before.known()) continue;
        ASSERT_TRUE(bubble.waits_for.known()) << run.schedule.algorithm;
        const ActionInput last = inputs.LastOf(bubble.before);
        EXPECT_EQ(last.from, bubble.waits_for);
        EXPECT_NEAR(last.ready, inputs.TimeOf(bubble.before).start, 1e-6) << run.schedule.algorithm;
      }
    }
  }
}

TEST(Explain, TheCriticalPathHasNoSlack) {
  for (const Explained& run : ManyRuns()) {
    const ActionInputs inputs = run.Inputs();
    const std::vector<ActionAt> path = CriticalPath(run.schedule, run.timeline, inputs);
    ASSERT_FALSE(path.empty());
    EXPECT_NEAR(inputs.TimeOf(path.back()).end, run.result.makespan, 1e-9);
    EXPECT_NEAR(inputs.TimeOf(path.front()).start, 0, 1e-9) << run.schedule.algorithm;
    for (std::size_t i = 1; i < path.size(); ++i) {
      const Span& time = inputs.TimeOf(path[i]);
      const bool waits = IsWait(inputs.ActionOf(path[i]).first.op);
      const double start = waits ? time.end : time.start;
      const ActionInput last = inputs.LastOf(path[i]);
      const bool reads = last.from == path[i - 1] && std::abs(last.ready - start) < 1e-6;
      const bool follows = path[i].rank == path[i - 1].rank &&
                           std::abs(inputs.TimeOf(path[i - 1]).end - start) < 1e-6;
      EXPECT_TRUE(reads || follows) << run.schedule.algorithm;
    }
  }
}

Explained OneFOneB(double comm) {
  Schedule schedule = Generate("1f1b", {.ranks = 4, .microbatches = 8}).value();
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1, comm);
  return Simulated(std::move(schedule), std::move(costs));
}

// The bubble of 1F1B is (p-1)(F+B): on rank r, r F and (p-1-r)(F+B) of warm-up, r B of drain.
TEST(Explain, TheBubblesOfOneFOneBAreWarmUpAndDrain) {
  const Explained run = OneFOneB(0);
  const auto bubbles = run.Bubbles();
  for (int rank = 0; rank < 4; ++rank) {
    const TimeByCause totals = TotalsOf(bubbles[Index(rank)]);
    EXPECT_NEAR(totals[Index(BubbleCause::kWarmUp)] + totals[Index(BubbleCause::kDrain)], 9, 1e-9);
    EXPECT_GE(totals[Index(BubbleCause::kWarmUp)], rank);
    EXPECT_GE(totals[Index(BubbleCause::kDrain)], 2 * rank);
  }
}

TEST(Explain, LatencyIsCommunication) {
  const Explained run = OneFOneB(0.25);
  double total = 0;
  for (const std::vector<Bubble>& bubbles : run.Bubbles()) {
    total += TotalsOf(bubbles)[Index(BubbleCause::kCommunication)];
    for (const Bubble& bubble : bubbles) {
      if (bubble.cause != BubbleCause::kCommunication) continue;
      EXPECT_LE(bubble.end - bubble.start, 0.25 + 1e-9);
    }
  }
  EXPECT_GT(total, 0);
}

TEST(Explain, ASlowStageCausesImbalance) {
  Schedule schedule = Generate("1f1b", {.ranks = 4, .microbatches = 16}).value();
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.stages[2].forward = 2;
  const Explained run = Simulated(std::move(schedule), std::move(costs));
  const auto bubbles = run.Bubbles();
  EXPECT_GT(TotalsOf(bubbles[0])[Index(BubbleCause::kImbalance)], 8);
  EXPECT_EQ(TotalsOf(bubbles[2])[Index(BubbleCause::kImbalance)], 0);
}

TEST(Explain, AForwardThatDoesNotFitWaitsForMemory) {
  const Explained run = OneFOneB(0);
  const MemoryBound tight{run.costs, 4}, wide{run.costs, 8};
  EXPECT_GT(TotalsOf(run.Bubbles(tight)[0])[Index(BubbleCause::kMemoryLimit)], 5);
  EXPECT_EQ(TotalsOf(run.Bubbles(wide)[0])[Index(BubbleCause::kMemoryLimit)], 0);
}

TEST(Explain, MeasuredTimelinesNeedNoMessages) {
  Explained run = OneFOneB(0.25);
  run.messages.clear();
  const auto bubbles = run.Bubbles();
  double communication = 0;
  for (const std::vector<Bubble>& of_rank : bubbles) {
    communication += TotalsOf(of_rank)[Index(BubbleCause::kCommunication)];
  }
  EXPECT_GT(communication, 0);
  const ActionInputs inputs = run.Inputs();
  EXPECT_EQ(inputs.TimeOf(CriticalPath(run.schedule, run.timeline, inputs).front()).start, 0);
}

}  // namespace
}  // namespace penstock
