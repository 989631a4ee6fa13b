// Merges two graphs into one in which the collectives of each overlap with the compute of the
// other.
#pragma once

#include <map>

#include "base/result.h"
#include "graph/analysis/node_costs.h"
#include "graph/ir/ir.h"

namespace penstock {

struct StageGraphs;

// Returns a graph with the nodes, inputs and outputs of `first`, then of `second`. Both share
// parameters and gradients. All other values of `second` get new numbers, except the keys of
// `same`, which maps each to a value that `first` produces or to an input of `first`.
Graph JoinGraphs(const Graph& first, const Graph& second, const std::map<ValueId, ValueId>& same);

// Returns the graph with `first` added to the indices of its parameters and gradients. Used to join
// graphs of two stages, which are bound to the parameters of both.
Graph WithParametersFrom(Graph graph, int first);

// Returns backward_input and backward_weight as one graph with the inputs of both and with whole
// collectives. Its outputs are the first `leaving` outputs of backward_input: the gradients of the
// stage's inputs.
Graph WholeBackward(const Graph& input, const Graph& weight, std::size_t leaving);
Graph WholeBackward(const StageGraphs& graphs);

struct MultiplexedGraph {
  Graph graph;
  // Predicted seconds of this graph, and of both graphs in turn with blocking collectives.
  double seconds = 0;
  double seconds_in_turn = 0;
};

// Joins both graphs and splits every collective (HideCollectives). Results are bitwise equal to
// running the graphs one after the other.
// Errors: kInvalidArgument if both draw random numbers, because a run has one generator.
Result<MultiplexedGraph> MultiplexGraphs(const Graph& first, const Graph& second,
                                         const NodeCosts& costs);

}  // namespace penstock
