#include "scenario/price/failures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock {
namespace {

// Trains for some intervals and returns the part of the time that trained.
double SimulatedPart(const FailureTimes& times, double interval, int intervals) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> failure(1 / times.between);
  double now = 0, next = failure(random);
  const auto runs = [&](double seconds) {
    now += seconds;
    if (now <= next) return true;
    now = next;
    next = now + failure(random);
    return false;
  };
  for (int done = 0; done < intervals;) {
    if (runs(interval + times.checkpoint)) {
      ++done;
      continue;
    }
    while (!runs(times.restart)) {
    }
  }
  return intervals * interval / now;
}

TEST(Failures, TrainingPartIsWhatRandomFailuresLeave) {
  for (const FailureTimes& times :
       {FailureTimes{1000, 50, 10}, FailureTimes{200, 100, 30}, FailureTimes{5000, 0, 1}}) {
    for (const double interval : {20.0, 140.0, 600.0}) {
      EXPECT_NEAR(TrainingPart(times, interval), SimulatedPart(times, interval, 200000), 5e-3)
          << times.between << " " << interval;
    }
  }
}

TEST(Failures, NoOtherIntervalTrainsMore) {
  for (const double between : {1.0, 60.0, 1e4, 1e7}) {
    for (const double checkpoint : {0.0, 1e-3, 5.0, 600.0}) {
      for (const double step : {0.01, 3.0, 500.0}) {
        const FailureTimes times{between, 120, checkpoint};
        const CheckpointInterval best = BestCheckpointInterval(times, step);
        ASSERT_GE(best.steps, 1);
        EXPECT_EQ(best.training_part, TrainingPart(times, static_cast<double>(best.steps) * step));
        for (const double factor : {0.25, 0.5, 0.9, 1.1, 2.0, 4.0}) {
          const double steps = std::max(1.0, std::round(static_cast<double>(best.steps) * factor));
          EXPECT_LE(TrainingPart(times, steps * step), best.training_part);
        }
      }
    }
  }
}

TEST(Failures, RareFailuresHaveYoungsInterval) {
  const FailureTimes times{1e8, 60, 2};
  const auto steps = static_cast<double>(BestCheckpointInterval(times, 1).steps);
  EXPECT_NEAR(steps, std::sqrt(2 * times.checkpoint * times.between), 5);
}

TEST(Failures, FreeCheckpointsAreWrittenAfterEachStep) {
  EXPECT_EQ(BestCheckpointInterval({1e6, 60, 0}, 2).steps, 1);
}

}  // namespace
}  // namespace penstock
