// The time of a training step and the bytes of each rank, as a model and its devices determine them
// for one schedule.
#pragma once

#include <optional>
#include <vector>

#include "scenario/price/build.h"
#include "scenario/price/failures.h"
#include "scenario/price/peak_bytes.h"
#include "simulate/simulate.h"

namespace penstock {

struct StepEstimate {
  // Seconds. What follows the pipeline is counted on the rank that takes longest.
  double makespan = 0;  // of the pipeline
  double reduce = 0;    // of gradients between replicas
  double update = 0;    // of the optimizer
  double gather = 0;    // of weights that replicas share
  double step_time = 0;

  double tokens = 0;  // of all replicas
  double flops = 0;   // of the model, of all devices: 3 times the forwards'
  int devices = 1;    // with idle ones
  int idle_devices = 0;
  std::vector<PeakBytes> ranks;  // by pipeline rank
  // Steps between checkpoints, if devices fail, with the part of the time that trains.
  std::optional<CheckpointInterval> checkpoints = {};

  double tokens_per_second() const { return tokens / step_time; }
  double tokens_per_device() const { return tokens_per_second() / devices; }  // per second
  // In the mean, with the time that failures and checkpoints take.
  double expected_tokens_per_second() const {
    return tokens_per_second() * (checkpoints ? checkpoints->training_part : 1);
  }
  double flops_per_device() const { return flops / step_time / devices; }  // per second
  // What the framework allocates on the worst rank, and what a device holds there.
  double peak_bytes() const;
  double device_bytes() const;
};

// Returns the estimate of a schedule that was simulated with this result. Requires: chosen.model is
// set.
StepEstimate EstimateOf(const PricedSchedule& chosen, const SimulationResult& result);

}  // namespace penstock
