// VerifyGraph: checks that a graph is well-formed. RunPasses calls it after every pass.
#pragma once

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Errors: kInternal, naming the graph, the node and the value, for:
// - a value that is read before it is produced, produced twice, or out of range;
// - a view of a view, or a view outside the memory of its root;
// - arguments or outputs that do not match the op's schema;
// - a node that mutates anything but a bound gradient, or reads one.
Status VerifyGraph(const Graph& graph);

}  // namespace penstock
