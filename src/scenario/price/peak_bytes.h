// What one device of each pipeline rank holds at its peak, by kind.
#pragma once

#include "scenario/price/build.h"
#include "simulate/simulate.h"

namespace penstock {

struct PeakBytes {
  double weights = 0;  // with masters
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double gathered = 0;   // weights of other replicas, while a layer computes with them
  double messages = 0;   // buffers of messages between ranks
  double workspace = 0;  // of libraries, and temporary tensors
  double others = 0;     // buffers and masks of the framework
  // Unused memory that the framework's allocator holds, because free memory is in pieces.
  double fragmentation = 0;
  double context = 0;  // of the device's driver and of libraries of collectives

  // What the framework's allocator counts as allocated (torch.cuda.max_memory_allocated).
  double allocated() const {
    return weights + gradients + optimizer + activations + gathered + messages + workspace + others;
  }
  // What the device holds.
  double total() const { return allocated() + fragmentation + context; }
};

// Returns what one pipeline rank always holds in addition to states. Requires: chosen.model is set.
PeakBytes HeldAlways(const PricedSchedule& chosen, int rank);

// Returns the peak of one pipeline rank of a schedule that was simulated with this result: what its
// microbatches in flight keep and what its running action needs, when their sum is largest.
// Requires: chosen.model is set.
PeakBytes PeakOfRank(const PricedSchedule& chosen, const SimulationResult& result, int rank);

}  // namespace penstock
