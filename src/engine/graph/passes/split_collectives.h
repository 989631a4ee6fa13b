// Orders the nodes of a graph so that it computes while its collectives move data.
#pragma once

#include "graph/analysis/node_costs.h"
#include "graph/ir/ir.h"

namespace penstock {

// How the nodes of two joined graphs are mixed.
enum class Mixing {
  kFree,         // by the length of the path to the end
  kSecondFills,  // nodes of the second graph run where the first one would wait, and after it
};

struct OrderSeconds {
  double ordered = 0;  // predicted
  double in_turn = 0;  // of the nodes one after another, with blocking collectives
};

// Splits every collective into its start, as soon as its input is available, and its wait, right
// before its first reader. A list scheduler orders the nodes by their costs. The first `of_first`
// nodes are of the first of two joined graphs. Results are bitwise the same.
//
// The order in which collectives start does not depend on sizes or costs. So ranks of a group whose
// graphs differ in sizes only, such as uneven parts, start the same collectives in the same order.
// Requires: the graph has whole collectives only, and at most one of the two draws random numbers.
OrderSeconds HideCollectives(Graph& graph, std::size_t of_first, Mixing mixing,
                             const NodeCosts& costs);

// Returns the graph with whole collectives in place of their starts. Requires: each start has its
// wait in the graph.
Graph WithWholeCollectives(Graph graph);

}  // namespace penstock
