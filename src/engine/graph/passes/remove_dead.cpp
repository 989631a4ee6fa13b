// Removes nodes whose results nothing reads, and unread bound values, from every graph.
//
// Order: after the passes that leave dead nodes.
#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

void RemoveDeadNodes(Graph& graph) {
  const std::vector<bool> needed = NeededNodes(graph, graph.outputs, /*effects=*/true);
  std::vector<Node> kept;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) kept.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(kept);
  PruneBound(graph);
}

}  // namespace

Status RemoveDead(StageGraphs& graphs, const CompileOptions&) {
  for (Graph* graph : AllGraphs(graphs)) RemoveDeadNodes(*graph);
  return {};
}

}  // namespace penstock
