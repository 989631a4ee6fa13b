#include "simulate/runs/monte_carlo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/catalog.h"
#include "simulate/noise/jitter.h"
#include "simulate/simulate.h"
#include "tests/schedules/simulate/random_schedule.h"

namespace penstock {
namespace {

Schedule Made(const char* name, int ranks, int microbatches) {
  return Generate(name, {.ranks = ranks, .microbatches = microbatches}).value();
}

std::vector<double> AllOf(const MonteCarloResult& result) {
  std::vector<double> all;
  for (const Spread& spread : {result.makespan, result.bubble, result.span_bubble}) {
    all.insert(all.end(), {spread.mean, spread.median, spread.p95});
  }
  return all;
}

TEST(MonteCarlo, FiguresAreThoseOfItsRuns) {
  const Schedule schedule = Made("zb-h1", 4, 8);
  const Costs costs = Uniform(schedule, 0.25);
  for (const int runs : {1, 2, 19, 20, 21, 100}) {
    std::vector<double> makespans, bubbles;
    for (int run = 0; run < runs; ++run) {
      const Jitter jitter(0.2, 7, static_cast<std::uint64_t>(run));
      const auto result = Simulate(schedule, costs, {.jitter = &jitter}).value();
      makespans.push_back(result.makespan);
      bubbles.push_back(result.bubble);
    }
    const auto result = SimulateRuns(schedule, costs, {.jitter = 0.2, .seed = 7, .runs = runs});
    ASSERT_TRUE(result);
    for (const auto& figure :
         {std::pair(makespans, result->makespan), std::pair(bubbles, result->bubble)}) {
      std::vector<double> values = figure.first;
      const Spread& spread = figure.second;
      std::ranges::sort(values);
      double sum = 0;
      for (const double value : values) sum += value;
      EXPECT_NEAR(spread.mean, sum / runs, 1e-12 * sum);
      EXPECT_TRUE(std::ranges::binary_search(values, spread.median));
      EXPECT_TRUE(std::ranges::binary_search(values, spread.p95));
      const auto not_above = [&](double limit) {
        return std::ranges::upper_bound(values, limit) - values.begin();
      };
      const auto below = [&](double limit) {
        return std::ranges::lower_bound(values, limit) - values.begin();
      };
      EXPECT_GE(2 * not_above(spread.median), runs);
      EXPECT_LT(2 * below(spread.median), runs);
      EXPECT_GE(100 * not_above(spread.p95), 95 * runs);
      EXPECT_LT(100 * below(spread.p95), 95 * runs);
    }
  }
}

TEST(MonteCarlo, ThreadsDoNotMatterAndSeedsDo) {
  const Schedule schedule = Made("interleaved", 4, 16);
  const Costs costs = Uniform(schedule);
  MonteCarloOptions options{.jitter = 0.3, .seed = 1, .runs = 64, .threads = 1};
  const std::vector<double> expected = AllOf(SimulateRuns(schedule, costs, options).value());
  for (const int threads : {0, 2, 3, 8, 100}) {
    options.threads = threads;
    EXPECT_EQ(AllOf(SimulateRuns(schedule, costs, options).value()), expected) << threads;
  }
  options.seed = 2;
  EXPECT_NE(AllOf(SimulateRuns(schedule, costs, options).value()), expected);
}

TEST(MonteCarlo, Jitter0IsThePlan) {
  const Schedule schedule = Made("v-half", 4, 16);
  const Costs costs = Uniform(schedule, 0.1);
  const auto plan = Simulate(schedule, costs).value();
  const auto runs = SimulateRuns(schedule, costs, {}).value();
  for (const auto& [spread, figure] :
       {std::pair(runs.makespan, plan.makespan), std::pair(runs.bubble, plan.bubble),
        std::pair(runs.span_bubble, plan.span_bubble)}) {
    EXPECT_EQ(spread.mean, figure);
    EXPECT_EQ(spread.median, figure);
    EXPECT_EQ(spread.p95, figure);
  }
}

// One rank waits for nobody: its makespan is a sum of independent times.
TEST(MonteCarlo, ASingleRankTakesItsPlanInTheMean) {
  constexpr int kMicrobatches = 50, kRuns = 2000;
  constexpr double kStandardErrors = 5, kJitter = 0.4;
  const Schedule schedule = Made("1f1b", 1, kMicrobatches);
  const auto runs =
      SimulateRuns(schedule, Uniform(schedule), {.jitter = kJitter, .seed = 5, .runs = kRuns});
  ASSERT_TRUE(runs);
  // F takes 1 and B 2.
  const double deviation = kJitter * std::sqrt(kMicrobatches * (1.0 + 4.0));
  EXPECT_NEAR(runs->makespan.mean, 3 * kMicrobatches,
              kStandardErrors * deviation / std::sqrt(kRuns));
  EXPECT_NEAR(runs->makespan.p95, 3 * kMicrobatches + 1.645 * deviation, 0.3 * deviation);
  EXPECT_EQ(runs->bubble.p95, 0);
}

TEST(MonteCarlo, MoreJitterCostsMore) {
  for (const char* name : {"1f1b", "zb-h1", "interleaved", "dualpipe"}) {
    const Schedule schedule = Made(name, 8, 32);
    const Costs costs = Uniform(schedule);
    double last = Simulate(schedule, costs)->makespan;
    for (const double jitter : {0.05, 0.2, 0.5}) {
      const auto runs = SimulateRuns(schedule, costs, {.jitter = jitter});
      ASSERT_TRUE(runs);
      EXPECT_GT(runs->makespan.mean, last) << name;
      EXPECT_GE(runs->makespan.p95, runs->makespan.median) << name;
      last = runs->makespan.mean;
    }
  }
}

TEST(MonteCarlo, FailsAsTheSimulatorDoes) {
  const Schedule schedule = Read("0F0,0B0\n1B0,1F0\n");
  const auto expected = Simulate(schedule, Uniform(schedule));
  const auto runs = SimulateRuns(schedule, Uniform(schedule), {.jitter = 0.1});
  ASSERT_FALSE(expected);
  ASSERT_FALSE(runs);
  EXPECT_EQ(runs.error().line(), expected.error().line());
}

}  // namespace
}  // namespace penstock
