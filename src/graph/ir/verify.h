// VerifyGraph: checks that a graph is well-formed. Runs after every pass.
#pragma once

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Errors: kInternal, naming the graph, the node and the value, for a value that is read before it
// is produced, produced twice or out of range; a view of a view, or one outside the memory of its
// root; arguments or outputs that do not fit the op's schema; and a node that mutates anything but
// a bound gradient.
Status VerifyGraph(const Graph& graph);

}  // namespace penstock
