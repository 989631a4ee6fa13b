// Memory planning: computes the offsets of a run's values once, so that runs do not allocate them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

struct MemoryPlan {
  // By value: its offset in the arena; -1 for values that are not in the arena (inputs, bound
  // values, views, and values that leave the run).
  std::vector<std::int64_t> offsets;
  std::int64_t arena_bytes = 0;
  // Peak bytes of the values that the run produces, including its outputs. No plan for this order
  // of nodes needs less.
  std::int64_t peak_bytes = 0;
};

// Returns a plan for runs of the graph. A value is alive from its node to its last reader. Larger
// values are placed first, each at the lowest offset that is free for its lifetime (greedy by size:
// Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020, section 5.2).
MemoryPlan PlanMemory(const Graph& graph);

// Returns the bytes from a tensor's first element to past its last: the size of its allocation.
std::int64_t StorageBytes(const TensorType& type);

}  // namespace penstock
