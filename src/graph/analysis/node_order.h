// The order constraints between the nodes of a graph.
#pragma once

#include <span>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// By node: predecessors that must be done before it, and predecessors that must only have started.
// All of them have smaller indices.
struct NodeOrder {
  std::vector<std::vector<int>> after;
  std::vector<std::vector<int>> after_start;
};

// Returns the constraints under which any order keeps the meaning of the graph. A value is produced
// before it is read. Mutations of one gradient and random nodes keep their order, so that sums and
// draws stay the same. Collectives of a group start in their order. `part` says, by node, which of
// several joined graphs the node comes from: random nodes and collectives of different parts are
// not ordered.
NodeOrder OrderOf(const Graph& graph, std::span<const int> part);

}  // namespace penstock
