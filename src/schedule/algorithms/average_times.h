// Costs with all times alike, for orders made for F = I = W.
#pragma once

#include "schedule/algorithms/problem.h"

namespace penstock {

// The same costs with every F, I and W at their average, and without latency.
inline Costs AverageTimes(const Problem& problem) {
  Costs averages = problem.costs;
  double total = 0;
  for (const StageCosts& stage : averages.stages) {
    total += stage.forward + stage.backward_input + stage.backward_weight;
  }
  const double average = total / 3 / static_cast<double>(averages.stages.size());
  for (StageCosts& stage : averages.stages) {
    stage.forward = stage.backward_input = stage.backward_weight = average;
  }
  averages.comm = 0;
  return averages;
}

inline bool HasEqualTimes(const Problem& problem) {
  const double time = problem.costs.stages.front().forward;
  bool equal = problem.costs.comm == 0;
  for (const StageCosts& stage : problem.costs.stages) {
    equal = equal && stage.forward == time && stage.backward_input == time &&
            stage.backward_weight == time;
  }
  return equal;
}

}  // namespace penstock
