// What passes share that run nodes of an earlier piece again in a later one.
#pragma once

#include <vector>

#include "graph/analysis/recompute_plan.h"
#include "graph/passes/stage_graphs.h"

namespace penstock {

ValueSet BoundValues(const Graph& graph);
// Adds the plan's recomputed nodes to the piece and updates its inputs.
void RecomputeIn(const RecomputeProblem& problem, const RecomputePlan& plan, const Graph& joint,
                 Graph& piece);
// Sets the saved values to the results of forward that the pieces of backward read.
void SaveForReaders(StageGraphs& graphs, const std::vector<const Graph*>& readers);
// Returns whether the node copies tensors and changes no element.
bool IsCopy(const Node& node);

}  // namespace penstock
