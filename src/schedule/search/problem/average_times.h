// Costs with all times alike, for orders made for F = I = W.
#pragma once

#include <cmath>

#include "schedule/search/problem/problem.h"

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

// Whether all stages take the same time, with F = I = W (where backwards are whole, B = 2F), and
// transfers take none.
inline bool HasEqualTimes(const Problem& problem) {
  const double time = problem.costs.stages.front().forward;
  const auto equal = [time](double other, double part) {
    return std::abs(other - time * part) <= kRounding * time;
  };
  bool all = problem.costs.comm == 0;
  for (const StageCosts& stage : problem.costs.stages) {
    all = all && equal(stage.forward, 1) &&
          equal(stage.backward_input + stage.backward_weight, 2) &&
          (!problem.split || equal(stage.backward_input, 1));
  }
  return all;
}

}  // namespace penstock
