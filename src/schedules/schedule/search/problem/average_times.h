// Costs with equal times, for orders that assume F = I = W.
#pragma once

#include <cmath>

#include "schedule/search/problem/problem.h"

namespace penstock {

// Makes F, I and W take the same time; a whole B then takes twice that.
inline void SetEqualTimes(StageCosts& stage, double time) {
  stage.forward = stage.backward_input = stage.backward_weight = time;
  stage.saved_by_whole_backward = 0;
}

// Returns the costs with the average time for every F, I and W, and without latency.
inline Costs AverageTimes(const Problem& problem) {
  Costs averages = problem.costs;
  double total = 0;
  for (const StageCosts& stage : averages.stages) {
    total += stage.forward + stage.backward_input + stage.backward_weight;
    if (!problem.split) total -= stage.saved_by_whole_backward;
  }
  const double average = total / 3 / static_cast<double>(averages.stages.size());
  for (StageCosts& stage : averages.stages) SetEqualTimes(stage, average);
  averages.ClearComm();
  return averages;
}

// Whether all stages take the same time, with F = I = W (B = 2F without split), and transfers take
// none.
inline bool HasEqualTimes(const Problem& problem) {
  const double time = problem.costs.stages.front().forward;
  const auto equal = [time](double other, double part) {
    return std::abs(other - time * part) <= kRounding * time;
  };
  bool all = problem.costs.comm == 0;
  for (const StageCosts& stage : problem.costs.stages) {
    all = all && equal(stage.forward, 1) &&
          (problem.split ? equal(stage.backward_input, 1) && equal(stage.backward_weight, 1)
                         : equal(stage.Backward(), 2));
  }
  return all;
}

}  // namespace penstock
