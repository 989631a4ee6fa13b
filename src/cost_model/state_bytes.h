// Weights, gradients and optimizer state of a rank, by its precision.
#pragma once

#include "cost_model/microbatch.h"
#include "model_spec/state_bytes.h"

namespace penstock {

// The states of AdamW, with gradients summed in fp32, as `penstock train` has them by default.
inline StateBytes StatesOf(double parameters, Precision precision, const Sharding& sharding) {
  return StatesOf(ElementsOf(parameters, sharding), AdamWFormat(ElementBytes(precision)));
}

// The memory that AdamW's step reads and writes.
inline double StepBytes(double parameters, Precision precision, const Sharding& sharding) {
  return StepBytes(ElementsOf(parameters, sharding), AdamWFormat(ElementBytes(precision)));
}

}  // namespace penstock
