#include "scenario/price/failures.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Returns the interval in seconds where the derivative of TrainingPart is 0. It is below
// `between`, since TrainingPart falls from there on.
double BestInterval(const FailureTimes& times) {
  const auto is_short = [&](double interval) {
    return interval < -times.between * std::expm1(-(interval + times.checkpoint) / times.between);
  };
  double low = 0, high = times.between;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (is_short(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

double TrainingPart(const FailureTimes& times, double interval) {
  const double between = times.between;
  return interval / (between * std::exp(times.restart / between) *
                     std::expm1((interval + times.checkpoint) / between));
}

CheckpointInterval BestCheckpointInterval(const FailureTimes& times, double step_time) {
  constexpr double kMostSteps = 1e15;
  const double below = std::floor(std::min(BestInterval(times) / step_time, kMostSteps));
  CheckpointInterval best{1, TrainingPart(times, step_time)};
  for (const double steps : {below, below + 1}) {
    const double part = steps < 1 ? 0 : TrainingPart(times, steps * step_time);
    if (part > best.training_part) best = {static_cast<std::int64_t>(steps), part};
  }
  return best;
}

}  // namespace penstock
