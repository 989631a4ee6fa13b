// What a node costs before it is run.
#pragma once

#include <cstdint>

#include "graph/ir/ir.h"

namespace penstock {

// Floating-point operations of a node's matmuls, attention and convolutions, a multiplication and
// an addition counting two, the causal half of attention counted as done; 0 for all other ops,
// whose time goes by bytes. (The count of PyTorch's FlopCounterMode.)
std::int64_t FlopsOf(const Graph& graph, const Node& node);
std::int64_t FlopsOf(const Graph& graph);

}  // namespace penstock
