// Computes values that depend only on constants at compile time, such as position tables and masks.
//
// Order: first, so that later passes neither see nor save such values. The folded values take
// memory once per stage.
#include <c10/core/InferenceMode.h>

#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/passes/passes.h"
#include "graph/run/interpret.h"

namespace penstock {

Status FoldConstants(StageGraphs& graphs, const CompileOptions&) {
  Graph& graph = graphs.joint.graph;
  Graph folded = EmptyLike(graph, "constants");
  ValueSet constant(graph, {});
  for (const Bound& bound : graph.bound) {
    if (bound.kind == BoundKind::kConstant) constant.insert(bound.value);
  }
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    bool fold = !IsRandom(node) && !IsCollective(node);
    ForEachInput(node, [&](ValueId id) { fold = fold && constant.contains(graph.Root(id)); });
    if (!fold) {
      kept.push_back(std::move(node));
      continue;
    }
    for (const ValueId output : node.outputs) {
      if (output == kNoValue) continue;
      constant.insert(output);
      folded.outputs.push_back(output);
    }
    folded.nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  PruneBound(folded);
  const std::vector<at::Tensor> tensors = RunReference(folded, {}, {});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    graph.bound.push_back({folded.outputs[i], BoundKind::kConstant, -1, "folded", tensors[i]});
  }
  return {};
}

}  // namespace penstock
