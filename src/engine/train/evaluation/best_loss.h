// BestLoss: the lowest held-out loss of a run so far, for early stopping and the best checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "monitor/metrics.h"

namespace penstock {

class BestLoss {
 public:
  BestLoss() = default;
  explicit BestLoss(const std::vector<HeldOutMetric>& earlier) {
    for (const HeldOutMetric& each : earlier) Add(each);
  }

  // Adds the next evaluation. Returns whether its loss is the lowest. One that is not finite never
  // is.
  bool Add(const HeldOutMetric& next) {
    last_step_ = next.step;
    const bool is_best = next.loss < best_.loss;
    if (is_best) best_ = next;
    since_ = is_best ? 0 : since_ + 1;
    return is_best;
  }

  const HeldOutMetric& best() const { return best_; }    // step -1 if there is none
  int since() const { return since_; }                   // evaluations since the best one
  std::int64_t last_step() const { return last_step_; }  // of the last evaluation; -1: none

 private:
  HeldOutMetric best_{-1, std::numeric_limits<double>::infinity()};
  int since_ = 0;
  std::int64_t last_step_ = -1;
};

}  // namespace penstock
