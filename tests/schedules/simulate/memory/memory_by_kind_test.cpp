// Memory by kind: what each kind holds over time, the peaks and their causes.
#include "simulate/memory/memory_by_kind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/index.h"
#include "schedule/catalog.h"
#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Simulation {
  Schedule schedule = {};
  Costs costs = {};
  Timeline timeline = {};
  std::vector<SentMessage> messages = {};
  SimulationResult result = {};

  MemoryInput input() const { return {schedule, timeline, messages, costs, 1}; }
};

Simulation SimulationOf(Schedule schedule, Costs costs) {
  Simulation run = {.schedule = std::move(schedule), .costs = std::move(costs)};
  const SimulateOptions options{
      .timeline = &run.timeline, .jitter = nullptr, .messages = &run.messages};
  run.result = Simulate(run.schedule, run.costs, options).value();
  return run;
}

// Costs of random stages in which every kind of memory has its own size.
Costs RandomCosts(const Placement& placement, int slices, std::mt19937& random) {
  Costs costs = Costs::Uniform(placement, slices, 1, 1, 1, 0.25);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (StageCosts& stage : costs.stages) {
    stage.forward = draw(4);
    stage.backward_input = draw(4);
    stage.backward_weight = draw(4);
    stage.activation = 4 * draw(8);
    stage.activation_after_i = stage.activation / 2;
    stage.input_activation = 1;
    stage.unshard = draw(2);
    stage.gathered = draw(16);
    stage.weights = draw(64);
    stage.version = draw(32);
    stage.gradients = draw(64);
    stage.optimizer = draw(64);
    stage.workspace = draw(8);
  }
  costs.offload = costs.reload = 0.01;
  costs.message_bytes = 2;
  return costs;
}

double At(const MemoryCurve& curve, double time) {
  const auto after = std::ranges::upper_bound(curve, time, {}, &MemoryPoint::time);
  return std::prev(after)->amount;
}

double Total(const RankMemory& memory, double time) {
  double total = 0;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (static_cast<MemoryKind>(kind) == MemoryKind::kOffloaded) continue;
    total += At(memory.curves[kind], time);
  }
  return total;
}

std::vector<Simulation> ManyRuns() {
  std::mt19937 random(7);
  std::vector<Simulation> runs;
  const std::vector<std::vector<std::string>> passes = {
      {}, {"sharding"}, {"offload"}, {"recompute"}, {"communication"}};
  for (const Algorithm& algorithm : Catalog()) {
    ScheduleParams params = {.ranks = algorithm.placement == PlacementForm::kBidirectional ? 4 : 3,
                             .microbatches = 12};
    if (algorithm.supported.steps) params.steps = 3;
    const auto schedule = Generate(algorithm.name, params);
    if (!schedule) continue;
    for (const std::vector<std::string>& each : passes) {
      Costs costs = RandomCosts(schedule->placement, schedule->slices, random);
      auto changed = RunSchedulePasses(*schedule, each, SimulatedContext(costs));
      if (changed) runs.push_back(SimulationOf(std::move(*changed), std::move(costs)));
    }
  }
  EXPECT_GE(runs.size(), 60u);
  return runs;
}

TEST(MemoryByKindTest, ActivationsAndGatheredShardsAddUpToTheSimulatorsMemory) {
  for (const Simulation& run : ManyRuns()) {
    const std::vector<RankMemory> memory = MemoryByKind(run.input());
    for (int rank = 0; rank < run.schedule.ranks(); ++rank) {
      const auto& curves = memory[Index(rank)].curves;
      double peak = 0;
      for (const MemoryPoint& point : MemoryOverTime(run.schedule, run.timeline, run.costs, rank)) {
        const double held = At(curves[Index(MemoryKind::kActivations)], point.time) +
                            At(curves[Index(MemoryKind::kGathered)], point.time);
        ASSERT_NEAR(held, point.amount, 1e-9) << run.schedule.algorithm << " rank " << rank;
        peak = std::max(peak, held);
      }
      EXPECT_NEAR(peak, run.result.ranks[Index(rank)].peak_memory, 1e-9) << run.schedule.algorithm;
    }
  }
}

TEST(MemoryByKindTest, ThePeakIsTheLargestTotalAndItsKindsAddUpToIt) {
  for (const Simulation& run : ManyRuns()) {
    for (const RankMemory& memory : MemoryByKind(run.input())) {
      double largest = 0;
      for (const MemoryCurve& curve : memory.curves) {
        for (const MemoryPoint& point : curve) {
          largest = std::max(largest, Total(memory, point.time));
        }
      }
      EXPECT_NEAR(memory.peak.amount, largest, 1e-9);
      EXPECT_NEAR(Total(memory, memory.peak.time), largest, 1e-9);
      double sum = 0;
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
        EXPECT_EQ(memory.peak.by_kind[kind], At(memory.curves[kind], memory.peak.time));
        if (static_cast<MemoryKind>(kind) != MemoryKind::kOffloaded) {
          sum += memory.peak.by_kind[kind];
        }
      }
      EXPECT_NEAR(sum, memory.peak.amount, 1e-9);
    }
  }
}

TEST(MemoryByKindTest, WhatTheRunBorrowsIsFreeAtItsEnd) {
  for (const Simulation& run : ManyRuns()) {
    for (const RankMemory& memory : MemoryByKind(run.input())) {
      for (const MemoryKind kind : {MemoryKind::kActivations, MemoryKind::kMessages,
                                    MemoryKind::kWorkspace, MemoryKind::kOffloaded}) {
        const MemoryCurve& curve = memory.curves[Index(kind)];
        EXPECT_NEAR(curve.back().amount, 0, 1e-9) << NameOf(kind) << run.schedule.algorithm;
        for (const MemoryPoint& point : curve) EXPECT_GE(point.amount, -1e-9) << NameOf(kind);
      }
    }
  }
}

TEST(MemoryByKindTest, UnevenStagesKeepTheirOwnStates) {
  for (const Simulation& run : ManyRuns()) {
    const std::vector<RankMemory> memory = MemoryByKind(run.input());
    for (int rank = 0; rank < run.schedule.ranks(); ++rank) {
      double weights = 0, optimizer = 0;
      for (const int stage : run.schedule.placement.stages_of(rank)) {
        weights += run.costs.stages[Index(stage)].weights;
        optimizer += run.costs.stages[Index(stage)].optimizer;
      }
      EXPECT_EQ(memory[Index(rank)].peak.by_kind[Index(MemoryKind::kWeights)], weights);
      EXPECT_EQ(memory[Index(rank)].peak.by_kind[Index(MemoryKind::kOptimizer)], optimizer);
    }
  }
}

TEST(MemoryByKindTest, WhatARankAlwaysHoldsIsPartOfItsPeak) {
  const Simulation run = ManyRuns().front();
  const std::vector<RankMemory> without = MemoryByKind(run.input());
  MemoryInput input = run.input();
  input.always.resize(without.size());
  input.always.back()[Index(MemoryKind::kContext)] = 5;
  input.always.back()[Index(MemoryKind::kWorkspace)] = 7;
  const std::vector<RankMemory> with = MemoryByKind(input);
  EXPECT_EQ(with.front().peak.amount, without.front().peak.amount);
  EXPECT_EQ(with.back().peak.amount, without.back().peak.amount + 12);
  EXPECT_EQ(with.back().peak.time, without.back().peak.time);
  EXPECT_EQ(with.back().peak.by_kind[Index(MemoryKind::kContext)], 5);
  EXPECT_FALSE(Holds(without, MemoryKind::kContext));
  EXPECT_TRUE(Holds(with, MemoryKind::kContext));
}

TEST(MemoryByKindTest, NamesTheActionAndTheMicrobatchesInFlight) {
  const Placement placement = Placement::Looped(4, 1);
  const Simulation run = SimulationOf(Generate("1f1b", {.ranks = 4, .microbatches = 8}).value(),
                                      Costs::Uniform(placement, 1, 1, 1, 1));
  const std::vector<RankMemory> memory = MemoryByKind(run.input());
  for (int rank = 0; rank < 4; ++rank) {
    const MemoryPeak& peak = memory[Index(rank)].peak;
    EXPECT_EQ(peak.in_flight, std::vector<int>{4 - rank});
    const Action& action = run.schedule.lanes[Index(rank)][Index(peak.action)];
    EXPECT_EQ(action.first.op, Op::kForward);
    EXPECT_EQ(action.first.microbatch, 3 - rank);
  }
}

// Sent at 1, arrived at 3, and read when the second rank is free.
TEST(MemoryByKindTest, MessagesAreHeldBySenderAndReceiver) {
  Costs costs = Costs::Uniform(Placement::Looped(2, 1), 1, 1, 1, 1, 2);
  costs.message_bytes = 5;
  const Simulation run =
      SimulationOf(Generate("1f1b", {.ranks = 2, .microbatches = 1}).value(), std::move(costs));
  ASSERT_EQ(run.messages.size(), 2u);
  EXPECT_EQ(run.messages[0].sent, 1);
  EXPECT_EQ(run.messages[0].arrived, 3);
  for (const RankMemory& memory : MemoryByKind(run.input())) {
    const MemoryCurve& curve = memory.curves[Index(MemoryKind::kMessages)];
    EXPECT_EQ(At(curve, 0.5), 0);
    EXPECT_EQ(At(curve, 1.5), 5);
    EXPECT_EQ(At(curve, 3.5), 0);
  }
}

// Messages that share a link or keep ranks waiting are reported as well.
TEST(MemoryByKindTest, ReportsEveryMessageOfEveryKindOfTransfer) {
  const Schedule schedule = Generate("zbv", {.ranks = 4, .microbatches = 6}).value();
  for (const Transfers transfers :
       {Transfers::kAsynchronous, Transfers::kBlocking, Transfers::kBatched}) {
    Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1, 0.5);
    costs.transfers = transfers;
    const Simulation run = SimulationOf(schedule, std::move(costs));
    EXPECT_EQ(run.messages.size(), run.result.messages);
    for (const SentMessage& message : run.messages) {
      EXPECT_NEAR(message.arrived - message.sent, 0.5, 1e-12);
      EXPECT_EQ(message.from, schedule.placement.rank_of(message.stage));
      EXPECT_NE(message.from, message.to);
    }
  }
}

}  // namespace
}  // namespace penstock
