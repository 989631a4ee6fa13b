// Which nodes of a graph must stay behind which others.
#pragma once

#include <span>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// By node, nodes of smaller number: those that must be done before it, and those that must only
// have begun.
struct NodeOrder {
  std::vector<std::vector<int>> after;
  std::vector<std::vector<int>> after_start;
};

// What keeps the graph's meaning in any order that obeys it: a value is made before it is read;
// changes of a gradient keep their order, and random nodes theirs, so that sums and draws are the
// same; collectives of a group begin in their order. `part` says by node which of several graphs
// that were joined it is from: random nodes and collectives of different parts are not ordered.
NodeOrder OrderOf(const Graph& graph, std::span<const int> part);

}  // namespace penstock
