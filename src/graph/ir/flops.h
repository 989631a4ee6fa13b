// What a node costs before it is run.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Returns the floating-point operations of a node's matmuls and attention, where a multiplication
// and an addition count as two and causal attention counts in full, as in PyTorch's
// FlopCounterMode; 0 for the ops of ops_without_flops.h. Errors: kInvalidArgument, naming node and
// op, for any other op.
Result<std::int64_t> FlopsOf(const Graph& graph, const Node& node);
Result<std::int64_t> FlopsOf(const Graph& graph);

}  // namespace penstock
