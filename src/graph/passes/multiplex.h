// Two graphs as one, ordered so that the collectives of each run under the compute of the other.
#pragma once

#include <map>

#include "base/result.h"
#include "graph/analysis/node_costs.h"
#include "graph/ir/ir.h"

namespace penstock {

struct Piece;
struct StageGraphs;
struct StageProgram;

// `second` behind `first`: inputs and outputs of both, those of `first` in front. Parameters and
// gradients are the same values for both; all other values of `second` get new numbers, but for
// those in `same`, which are this value of `first`: made there, or an input of both.
Graph JoinGraphs(const Graph& first, const Graph& second, const std::map<ValueId, ValueId>& same);

// The graph with its parameters and gradients numbered from `first` on: for a graph of another
// stage, bound to the parameters of both stages, one behind the other.
Graph WithParametersFrom(Graph graph, int first);

// backward_input and backward_weight in one: inputs as both have them -> the first `leaving`
// outputs of backward_input, which are the input's gradients.
Graph WholeBackward(const Graph& input, const Graph& weight, std::size_t leaving);
Graph WholeBackward(const StageGraphs& graphs);

struct MultiplexedGraph {
  Graph graph;
  // What the costs say that it takes, and that the two take in turn with collectives that block.
  double seconds = 0;
  double seconds_in_turn = 0;
};

// Both graphs joined, every collective cut into its start and its wait, the nodes in the order of
// ListSchedule. Running it gives bitwise what running the two in turn gives. Refuses graphs that
// both draw random numbers: a run has one generator.
Result<MultiplexedGraph> MultiplexGraphs(const Graph& first, const Graph& second,
                                         const NodeCosts& costs);

// The same of pieces: the forward of one stage and the whole backward of another one of the rank,
// whose parameters are numbered behind the first one's, `parameters` in all; or of one stage, with
// `parameters` 0.
Result<Piece> OverlapStages(const StageProgram& forward, const StageProgram& backward,
                            int parameters, const NodeCosts& costs);
// The joined graph with the places of the forward's microbatch, then those of the backward's.
Piece PlaceOverlapped(Graph overlapped, const StageProgram& forward, const StageProgram& backward);

}  // namespace penstock
