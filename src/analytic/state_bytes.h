// Weights, gradients and optimizer state of a rank.
#pragma once

#include "analytic/microbatch.h"

namespace penstock {

struct StateBytes {
  double weights = 0;  // with fp32 masters in bf16
  double version = 0;  // of each older version that is kept: without masters
  double gradients = 0;
  double optimizer = 0;

  double total() const { return weights + gradients + optimizer; }
  StateBytes operator+(const StateBytes& more) const {
    return {weights + more.weights, version + more.version, gradients + more.gradients,
            optimizer + more.optimizer};
  }
};

// What replicas of a stage divide among themselves (ZeRO, Rajbhandari et al. 2020): from 1 on
// masters and optimizer state, from 2 on gradients, from 3 on weights.
struct Sharding {
  int zero = 0;
  double replicas = 1;

  double Share(int from_zero) const { return zero >= from_zero ? 1 / replicas : 1; }
};

// The states of AdamW, with gradients summed in fp32, as `penstock train` has them by default.
StateBytes StatesOf(double parameters, Precision precision, const Sharding& sharding);

// The memory that AdamW's step reads and writes.
double StepBytes(double parameters, Precision precision, const Sharding& sharding);

}  // namespace penstock
