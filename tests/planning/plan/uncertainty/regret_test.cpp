#include "plan/uncertainty/regret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "simulate/noise/jitter.h"

namespace penstock {
namespace {

constexpr std::size_t kSamples = 1000;

// Times of three candidates, each with a factor of its own; `factors` has the second candidate's.
SampledTimes TimesOf(double variation, std::vector<double>& factors) {
  SampledTimes times;
  for (std::size_t sample = 0; sample < kSamples; ++sample) {
    const Jitter jitter(variation, 3, sample);
    factors.push_back(jitter.Factor(1, 0));
    times.push_back({1, 1.02 * factors.back(), 1.1 * jitter.Factor(2, 0)});
  }
  return times;
}

double LeastExpected(const SampledTimes& times) {
  double least = INFINITY;
  for (const CandidateRegret& each : RegretsOf(times)) least = std::min(least, each.expected);
  return least;
}

TEST(Regret, EverySampleHasOneWinner) {
  for (const double variation : {0.0, 0.05, 0.3}) {
    std::vector<double> factors;
    std::size_t wins = 0;
    for (const CandidateRegret& each : RegretsOf(TimesOf(variation, factors))) {
      wins += each.wins;
      EXPECT_GE(each.expected, 0);
      EXPECT_GE(each.worst, each.expected * (1 - 1e-12));
      EXPECT_GT(each.mean_time, 0);
    }
    EXPECT_EQ(wins, kSamples);
  }
}

TEST(Regret, TiesAreTheFirstCandidates) {
  const auto regrets = RegretsOf({{1, 1}, {2, 2 * (1 + 1e-14)}, {3, 3 * (1 - 1e-14)}});
  EXPECT_EQ(regrets[0].wins, 3);
  EXPECT_EQ(regrets[0].expected, 0);
  EXPECT_EQ(regrets[1].expected, 0);
}

TEST(Regret, MoreVariationNeverWinsTheChoiceMore) {
  std::size_t previous = kSamples;
  for (const double variation : {0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5}) {
    std::vector<double> factors;
    SampledTimes times = TimesOf(variation, factors);
    for (std::vector<double>& sample : times) sample.pop_back();
    const std::size_t wins = RegretsOf(times)[0].wins;
    EXPECT_LE(wins, previous) << variation;
    previous = wins;
  }
  EXPECT_LT(previous, kSamples / 2 + kSamples / 4);
}

TEST(Regret, DoesNotDependOnTheUnitOfASample) {
  std::vector<double> factors;
  const SampledTimes times = TimesOf(0.1, factors);
  SampledTimes scaled = times;
  std::mt19937 random(5);
  for (std::vector<double>& sample : scaled) {
    const double unit = std::uniform_real_distribution(0.1, 10.0)(random);
    for (double& time : sample) time *= unit;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(RegretsOf(times)[i].wins, RegretsOf(scaled)[i].wins);
    EXPECT_NEAR(RegretsOf(times)[i].expected, RegretsOf(scaled)[i].expected, 1e-12);
  }
  EXPECT_NEAR(RegretLeft(times, factors), RegretLeft(scaled, factors), 1e-12);
}

TEST(Regret, KnowledgeOfWhatDecidesLeavesLittle) {
  std::vector<double> factors;
  SampledTimes times = TimesOf(0.1, factors);
  for (std::vector<double>& sample : times) sample.pop_back();
  const double least = LeastExpected(times);
  EXPECT_GT(least, 0.01);
  EXPECT_LT(RegretLeft(times, factors), 0.1 * least);
}

TEST(Regret, KnowledgeOfSomethingElseLeavesAll) {
  std::vector<double> factors, others;
  const SampledTimes times = TimesOf(0.1, factors);
  std::mt19937 random(7);
  for (std::size_t i = 0; i < kSamples; ++i) others.push_back(static_cast<double>(random()));
  const double least = LeastExpected(times);
  EXPECT_GT(RegretLeft(times, others), 0.95 * least);
  EXPECT_LE(RegretLeft(times, others), least * (1 + 1e-12));
  EXPECT_GE(RegretLeft(times, factors), 0);
}

TEST(Regret, FewSamplesAreEnough) {
  const SampledTimes times = {{1, 2}, {2, 1}};
  EXPECT_EQ(RegretsOf({{1, 2}})[0].wins, 1);
  EXPECT_EQ(RegretLeft({{1, 2}}, {1}), 0);
  EXPECT_LE(RegretLeft(times, {1, 2}), LeastExpected(times));
}

}  // namespace
}  // namespace penstock
