// Values whose number of rows differs from run to run (TensorType::rows_vary). A capture sees them
// with the rows of a balanced load, and must not record anything that depends on that number.
#pragma once

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Returns whether the results of a node of the graph have rows that vary. Errors: kInvalidArgument
// if they would depend on the number of rows of the example.
Result<bool> ResultRowsVary(const Node& node, const Graph& graph);

}  // namespace penstock
