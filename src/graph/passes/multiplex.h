// Merges two graphs into one, ordered so that the collectives of each overlap with the compute of
// the other.
#pragma once

#include <map>

#include "base/result.h"
#include "graph/analysis/node_costs.h"
#include "graph/ir/ir.h"

namespace penstock {

struct Piece;
struct StageGraphs;
struct StageProgram;

// Returns `first` followed by `second`: inputs and outputs of both, those of `first` first.
// Parameters and gradients are the same values for both. All other values of `second` get new
// numbers, except those in `same`, which maps them to a value of `first` (one that it produces, or
// an input of both).
Graph JoinGraphs(const Graph& first, const Graph& second, const std::map<ValueId, ValueId>& same);

// Returns the graph with its parameters and gradients numbered from `first` on, for a graph of
// another stage that is bound to the parameters of both stages.
Graph WithParametersFrom(Graph graph, int first);

// Returns backward_input and backward_weight as one graph. Inputs are those of both; outputs are
// the first `leaving` outputs of backward_input, the gradients of the inputs.
Graph WholeBackward(const Graph& input, const Graph& weight, std::size_t leaving);
Graph WholeBackward(const StageGraphs& graphs);

struct MultiplexedGraph {
  Graph graph;
  // Its duration according to the costs, and that of running both graphs in turn with blocking
  // collectives.
  double seconds = 0;
  double seconds_in_turn = 0;
};

// Joins both graphs, splits every collective into its start and its wait, and orders the nodes by
// ListSchedule. Results are bitwise equal to running the two in turn. Rejects graphs that both draw
// random numbers, because a run has one generator.
Result<MultiplexedGraph> MultiplexGraphs(const Graph& first, const Graph& second,
                                         const NodeCosts& costs);

// The same for pieces: the forward of one stage and the whole backward of another stage of the
// rank, whose parameters are numbered after the first one's `parameters`; or of a single stage,
// with `parameters` 0.
Result<Piece> OverlapStages(const StageProgram& forward, const StageProgram& backward,
                            int parameters, const NodeCosts& costs);
// Returns the joined graph with the slots of the forward's microbatch, then those of the
// backward's.
Piece PlaceOverlapped(Graph overlapped, const StageProgram& forward, const StageProgram& backward);

}  // namespace penstock
