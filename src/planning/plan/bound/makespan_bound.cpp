#include "plan/bound/makespan_bound.h"

#include <algorithm>

#include "plan/bound/in_flight_bound.h"
#include "schedule/search/problem/lower_bound.h"

namespace penstock {
namespace {

// What an overlapped pair takes at least, as a fraction of its two parts one after the other. With
// all times multiplied by it, the pairs of a schedule take no longer than its single actions do, so
// a bound for schedules without pairs then holds for those with pairs.
double LeastPairFraction(const Costs& costs) {
  double least = 1;
  for (const StageCosts& forward : costs.stages) {
    for (const StageCosts& backward : costs.stages) {
      const double both = forward.forward + backward.Backward();
      if (!(both > 0)) continue;
      least = std::min(least, costs.overlap.Price(forward.forward, backward.Backward()) / both);
    }
  }
  return least;
}

}  // namespace

double LengthBound(const Placement& placement, const Costs& costs, int microbatches,
                   double memory_limit, Objective objective, bool split) {
  Costs least = costs;
  const double fraction = LeastPairFraction(costs);
  for (StageCosts& stage : least.stages) {
    // A whole B may take less than I and W.
    const double backward = stage.backward_input + stage.backward_weight;
    const double whole = backward > 0 ? stage.Backward() / backward : 1;
    stage.forward *= fraction;
    stage.backward_input *= fraction * std::min(1.0, whole);
    stage.backward_weight *= fraction * std::min(1.0, whole);
  }
  least.SetCommByLevel(costs.SmallestMessage());
  const Problem problem = {placement,    least,    microbatches / placement.replicas(), 1, split,
                           memory_limit, objective};
  return std::max(LowerBound(problem), InFlightBound(problem));
}

}  // namespace penstock
