// FLOPs of nodes, computed from their types.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Returns the floating-point operations of the node as PyTorch's FlopCounterMode counts them: for
// matmuls and attention, where a multiplication and an addition are two operations and causal
// attention counts in full; 0 for the ops of ops_without_flops.h.
// Errors: kInvalidArgument, naming node and op, for any other op.
Result<std::int64_t> FlopsOf(const Graph& graph, const Node& node);
Result<std::int64_t> FlopsOf(const Graph& graph);

}  // namespace penstock
