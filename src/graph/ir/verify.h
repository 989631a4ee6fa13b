// VerifyGraph: proves that a graph is well-formed; run after every pass.
#pragma once

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Refuses (kInternal, naming the graph, the node and the value): a value read before it is made,
// made twice, or out of range; a view of a view, or one that lies outside of its root's memory;
// arguments or outputs that do not fit the op's schema; a node that changes anything but a bound
// gradient in place.
Status VerifyGraph(const Graph& graph);

}  // namespace penstock
