// Ops that count as zero FLOPs, as in PyTorch's FlopCounterMode.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// Whether the node runs a known op whose time depends on bytes rather than on FLOPs: pointwise ops,
// reductions, copies, indexing and random numbers. Add an op to the list in the .cpp file.
bool HasNoFlops(const Node& node);

}  // namespace penstock
