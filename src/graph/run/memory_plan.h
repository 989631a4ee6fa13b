// Where the values of a run lie: planned once, so that a run allocates nothing for them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

struct MemoryPlan {
  // By value: where it begins in the arena; -1 for what is not in it (inputs, bound values, views,
  // and what leaves the run).
  std::vector<std::int64_t> offsets;
  std::int64_t arena_bytes = 0;
  // Most bytes at once of values that the run makes, those that leave it included: what a run in
  // this order cannot do without.
  std::int64_t peak_bytes = 0;
};

// A value lives from its node to its last reader. The largest find their place first, each at the
// lowest offset that is free all its life (greedy by size: Pisarchyk and Lee, Efficient Memory
// Management for Deep Neural Net Inference, 2020, section 5.2).
MemoryPlan PlanMemory(const Graph& graph);

// Bytes of memory from a tensor's first element to its last, as an allocation of it takes.
std::int64_t StorageBytes(const TensorType& type);

}  // namespace penstock
