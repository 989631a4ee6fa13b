// Costs of microbatches that differ in length.
#pragma once

#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

// What decides which microbatch an index of a stage denotes.
struct BatchShape {
  const Placement& placement;
  int microbatches = 1;  // of one batch, over all chains; chain 0 runs the first ones
  int slices = 1;
};

// Refuses lengths that are not finite or not above 0. Errors: kInvalidArgument; names the parameter
// microbatch_lengths.
Status CheckLengths(const std::vector<double>& lengths);

// Scales the times and the memory of each microbatch, and its messages, by its relative length.
// With fewer lengths than microbatches of a batch, they repeat. Without any, changes nothing.
//
// If lengths differ, `by_slice` receives the costs of each index, and `stages` mean times and the
// largest memory, which searches plan with.
// Requires: one entry of `stages` per stage. Errors: as CheckLengths, and kInvalidArgument for more
// lengths than microbatches and for costs that leave their range.
Status ScaleByLength(Costs& costs, const std::vector<double>& lengths, const BatchShape& shape);

// Returns the mean length of the microbatches of a batch.
double MeanLength(const Costs& costs, const BatchShape& shape);

}  // namespace penstock
