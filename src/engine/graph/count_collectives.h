// Counts the collectives of graphs.
#pragma once

#include "collective/collective_count.h"
#include "graph/compile.h"

namespace penstock {

// Returns what the graph's collectives move, whole or split, by op and group in ascending order.
std::vector<CollectiveCount> CountCollectives(const Graph& graph);
CollectivesOfStage CountCollectives(const StageProgram& program);

}  // namespace penstock
