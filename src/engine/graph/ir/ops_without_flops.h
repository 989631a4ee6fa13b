// Ops that count as zero FLOPs, as in PyTorch's FlopCounterMode.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// Returns whether the node calls a known op whose time depends on bytes rather than FLOPs:
// pointwise ops, reductions, copies, indexing and random numbers. ops_without_flops.cpp lists them.
bool HasNoFlops(const Node& node);

}  // namespace penstock
