// The order constraints between the nodes of a graph.
#pragma once

#include <span>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// By node: predecessors that must have ended, and predecessors that must have started. All of them
// have smaller indices.
struct NodeOrder {
  std::vector<std::vector<int>> after;
  std::vector<std::vector<int>> after_start;
};

// Returns the constraints that every valid order of the graph satisfies. A value is produced before
// it is read. Mutations of one gradient keep their order, and so do random nodes, so that sums and
// random numbers stay the same. Collectives of a group start in their order. `part` is, by node,
// the index of the joined graph that the node comes from: random nodes and collectives of different
// parts are not ordered.
NodeOrder OrderOf(const Graph& graph, std::span<const int> part);

}  // namespace penstock
