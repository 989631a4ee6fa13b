#include "simulate/noise/jitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/index.h"
#include "schedule/catalog.h"
#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/simulate/random_schedule.h"

namespace penstock {
namespace {

// The mean of n numbers is within 5 standard errors of its expectation, except once in 2 million.
constexpr double kStandardErrors = 5;

TEST(Jitter, FactorsAreLognormalWithMean1AndTheVariationAskedFor) {
  constexpr int kRanks = 100, kPositions = 2000;
  const double count = double{1} * kRanks * kPositions;
  for (const double variation : {0.01, 0.1, 0.5, 1.0, 3.0}) {
    const Jitter jitter(variation, 3, 4);
    const double sigma = std::sqrt(std::log(1 + variation * variation));
    double sum = 0, logs = 0, squares = 0, lagged = 0, last = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t position = 0; position < kPositions; ++position) {
        const double factor = jitter.Factor(rank, position);
        const double normal = std::log(factor) / sigma + sigma / 2;
        sum += factor;
        logs += normal;
        squares += normal * normal;
        lagged += normal * last;
        last = normal;
      }
    }
    const double error = kStandardErrors / std::sqrt(count);
    EXPECT_NEAR(logs / count, 0, error);
    EXPECT_NEAR(squares / count, 1, error * std::sqrt(2.0));
    EXPECT_NEAR(lagged / count, 0, error) << "consecutive actions are independent";
    if (variation <= 1) {
      EXPECT_NEAR(sum / count, 1, error * variation);
    }
  }
}

TEST(Jitter, AFactorDependsOnSeedRunRankAndPosition) {
  std::set<double> factors;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const std::uint64_t seed = i % 2, run = i / 2 % 2;
    const std::size_t rank = i / 4 % 2, position = i / 8;
    factors.insert(Jitter(0.3, seed, run).Factor(rank, position));
    EXPECT_EQ(Jitter(0.3, seed, run).Factor(rank, position),
              Jitter(0.3, seed, run).Factor(rank, position));
  }
  EXPECT_EQ(factors.size(), 16U);
}

// Generates a schedule with passes that add every kind of action that occupies a rank.
Schedule DrawSchedule(const Algorithm& algorithm, Costs& costs, std::mt19937& random) {
  for (;;) {
    auto schedule = Generate(algorithm.name, testing::DrawParams(algorithm, random));
    if (!schedule) continue;
    costs = testing::DrawPassCosts(*schedule, random);
    auto passed =
        RunSchedulePasses(*schedule, testing::DrawPasses(2, random), SimulatedContext(costs));
    if (passed) return *std::move(passed);
  }
}

TEST(Jitter, EveryActionThatOccupiesARankTakesItsFactor) {
  std::mt19937 random(5);
  for (const Algorithm& algorithm : Catalog()) {
    for (int i = 0; i < testing::Cases(10); ++i) {
      Costs costs;
      const Schedule schedule = DrawSchedule(algorithm, costs, random);
      const Jitter jitter(0.5, random(), 0);
      Timeline timeline;
      const auto result = Simulate(schedule, costs, {.timeline = &timeline, .jitter = &jitter});
      ASSERT_TRUE(result) << algorithm.name << result.error().line();
      for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
        double busy = 0, end = 0;
        for (std::size_t a = 0; a < schedule.lanes[rank].size(); ++a) {
          const Action& action = schedule.lanes[rank][a];
          if (!OccupiesRank(action.first.op)) continue;
          const Span& span = timeline.spans[rank][a];
          EXPECT_GE(span.start, end) << algorithm.name;
          end = span.end;
          // A STEP that nothing waits for may run without a price.
          if (action.first.op == Op::kStep && span.end == span.start) continue;
          const double expected = jitter.Factor(rank, a) * costs.Duration(action);
          EXPECT_NEAR(span.end - span.start, expected, 1e-9) << algorithm.name;
          busy += expected;
        }
        EXPECT_NEAR(result->ranks[rank].busy, busy, 1e-9) << algorithm.name;
      }
    }
  }
}

// The costs under which each compute action takes what it takes with jitter. Requires: no pairs.
Costs WithFactors(const Schedule& schedule, const Costs& costs, const Jitter& jitter) {
  const std::size_t indices = Index(schedule.indices());
  Costs priced = costs;
  for (const StageCosts& stage : costs.stages) {
    priced.by_slice.insert(priced.by_slice.end(), indices, stage);
  }
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (std::size_t a = 0; a < schedule.lanes[rank].size(); ++a) {
      const Part& part = schedule.lanes[rank][a].first;
      const double factor = jitter.Factor(rank, a);
      StageCosts& stage = priced.by_slice[part.stage * indices + Index(part.microbatch)];
      const bool whole = part.op == Op::kBackward;
      if (part.op == Op::kForward) stage.forward *= factor;
      if (whole || part.op == Op::kBackwardInput) stage.backward_input *= factor;
      if (whole || part.op == Op::kBackwardWeight) stage.backward_weight *= factor;
      if (whole) stage.saved_by_whole_backward *= factor;
    }
  }
  return priced;
}

TEST(Jitter, RunsAreThoseOfThePerturbedCosts) {
  std::mt19937 random(6);
  for (int i = 0; i < testing::Cases(300); ++i) {
    const RandomShape shape = DrawShape(5, random);
    const Schedule schedule = RandomSchedule(shape, random);
    Costs costs = RandomCosts(shape.placement, random);
    for (StageCosts& stage : costs.stages) {
      stage.saved_by_whole_backward = 0.25 * stage.backward_weight;
    }
    // With these, a B sends its input gradient before its end, but never before its start.
    costs.early_gradients = i % 2 == 0;
    costs.transfers = i % 3 == 0 ? Transfers::kBlocking : Transfers::kAsynchronous;
    const Jitter jitter(0.7, random(), 1);
    const auto noisy = Simulate(schedule, costs, {.jitter = &jitter}).value();
    const auto priced = Simulate(schedule, WithFactors(schedule, costs, jitter)).value();
    EXPECT_NEAR(noisy.makespan, priced.makespan, 1e-9 * priced.makespan);
    for (std::size_t rank = 0; rank < noisy.ranks.size(); ++rank) {
      EXPECT_NEAR(noisy.ranks[rank].busy, priced.ranks[rank].busy, 1e-9 * priced.makespan);
      EXPECT_NEAR(noisy.ranks[rank].first_start, priced.ranks[rank].first_start,
                  1e-9 * priced.makespan);
      EXPECT_EQ(noisy.ranks[rank].peak_memory, Simulate(schedule, costs)->ranks[rank].peak_memory);
    }
  }
}

TEST(Jitter, NoJitterIsJitter0) {
  std::mt19937 random(7);
  const Jitter none(0, 1, 2);
  for (const Algorithm& algorithm : Catalog()) {
    for (int i = 0; i < testing::Cases(5); ++i) {
      Costs costs;
      const Schedule schedule = DrawSchedule(algorithm, costs, random);
      costs.early_gradients = i % 2 == 0;
      const auto plain = Simulate(schedule, costs).value();
      const auto same = Simulate(schedule, costs, {.jitter = &none}).value();
      EXPECT_EQ(plain.makespan, same.makespan);
      EXPECT_EQ(plain.span_bubble, same.span_bubble);
      for (std::size_t rank = 0; rank < plain.ranks.size(); ++rank) {
        EXPECT_EQ(plain.ranks[rank].busy, same.ranks[rank].busy);
        EXPECT_EQ(plain.ranks[rank].peak_memory, same.ranks[rank].peak_memory);
      }
    }
  }
}

// No run is shorter than the plan with all actions at the smallest factor, or longer than with all
// at the largest.
TEST(Jitter, RunsAreBetweenTheirExtremes) {
  for (const char* name : {"1f1b", "zb-h1", "interleaved", "dualpipe", "v-half"}) {
    const Schedule schedule = Generate(name, {.ranks = 4, .microbatches = 12}).value();
    const Costs costs = Uniform(schedule);
    const double plan = Simulate(schedule, costs)->makespan;
    for (std::uint64_t run = 0; run < 50; ++run) {
      const Jitter jitter(0.3, 8, run);
      double least = 1, most = 1;
      for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
        for (std::size_t a = 0; a < schedule.lanes[rank].size(); ++a) {
          least = std::min(least, jitter.Factor(rank, a));
          most = std::max(most, jitter.Factor(rank, a));
        }
      }
      const double makespan = Simulate(schedule, costs, {.jitter = &jitter})->makespan;
      EXPECT_GE(makespan, least * plan * (1 - 1e-12));
      EXPECT_LE(makespan, most * plan * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace penstock
