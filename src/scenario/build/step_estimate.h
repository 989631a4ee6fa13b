// The time of a training step and the bytes of each rank, as a model and its devices determine them
// for one schedule.
#pragma once

#include <vector>

#include "scenario/build/build.h"
#include "simulate/simulate.h"

namespace penstock {

// What one device of a pipeline rank holds at its peak.
struct PeakBytes {
  double weights = 0;  // with masters
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double workspace = 0;  // temporary, while kernels compute
  double messages = 0;   // buffers between ranks
  double others = 0;     // of the framework
  // Of the driver and of libraries of collectives. A framework's allocator does not count it, so
  // the total does not, either.
  double context = 0;

  double total() const {
    return weights + gradients + optimizer + activations + workspace + messages + others;
  }
};

struct StepEstimate {
  // Seconds. What follows the pipeline is that of the rank that takes longest.
  double makespan = 0;  // of the pipeline
  double reduce = 0;    // of gradients between replicas
  double update = 0;    // of the optimizer
  double gather = 0;    // of weights that replicas share
  double step_time = 0;

  double tokens = 0;  // of all replicas
  double flops = 0;   // of the model, of all devices: 3 times those of the forwards
  int devices = 1;
  std::vector<PeakBytes> ranks;  // by pipeline rank

  double tokens_per_second() const { return tokens / step_time; }
  double flops_per_device() const { return flops / step_time / devices; }  // per second
  double peak_bytes() const;                                               // of the worst rank
};

// Returns the estimate of a schedule that was simulated with this result. Requires: chosen.model is
// set.
StepEstimate EstimateOf(const PricedSchedule& chosen, const SimulationResult& result);

}  // namespace penstock
