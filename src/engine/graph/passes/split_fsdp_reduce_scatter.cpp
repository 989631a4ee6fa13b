// Moves the reduce-scatter of gradients to a graph of its own.
//
//   before:  joint:        %f = penstock::pack([%da, %db]);  %s = penstock::reduce_scatter(%f)
//                          -> %s
//   after:   joint:        -> %da, %db
//            reduce_grad:  %s = penstock::reduce_scatter(%gradients);  copy_(%shard, %s)
//
// A sum over microbatches of reduce-scatters is the reduce-scatter of the sum. So the gradients are
// first added to their accumulators, which lie in memory as `pack` would put them, and REDUCE_GRAD
// runs `reduce_grad` once. (After the pass of the same name in torchtitan's GraphPP.) Order: before
// the partition, so that the gradients of parameters are outputs of the backward.
#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

Graph ReduceGrad(const Graph& joint, const Node& scatter) {
  Graph graph = EmptyLike(joint, "reduce_grad");
  const auto gradients = std::get<ValueId>(scatter.arguments.front());
  const ValueId sum = scatter.outputs.front();
  const ValueId shard = graph.AddValue({graph.value(sum).type, kNoValue, 0});
  graph.bound.push_back({gradients, BoundKind::kUnreducedGradients, 0, "", at::Tensor()});
  graph.bound.push_back({shard, BoundKind::kGradientShard, 0, "", at::Tensor()});
  graph.nodes = {
      scatter,
      {FindOp("aten::copy_", ""), {shard, sum, c10::IValue(false)}, {kNoValue}, Phase::kBackward}};
  PruneBound(graph);
  return graph;
}

}  // namespace

Status SplitFsdpReduceScatter(StageGraphs& graphs, const CompileOptions&) {
  JointGraph& joint = graphs.joint;
  if (!joint.sharding) return {};
  const ValueId sum = joint.graph.outputs.back();
  const auto scatter = std::ranges::find_if(joint.graph.nodes, [&](const Node& node) {
    return std::ranges::find(node.outputs, sum) != node.outputs.end();
  });
  graphs.reduce_grad = ReduceGrad(joint.graph, *scatter);
  const auto pack = scatter - 1;
  const auto parts = std::get<std::vector<ValueId>>(pack->arguments.front());
  const std::vector<std::int64_t> starts = Constant(*pack, 1).toIntVector();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto parameter = std::ranges::find(joint.sharding->starts, starts[part]);
    joint.graph.outputs[joint.output_gradients.size() +
                        Index(parameter - joint.sharding->starts.begin())] = parts[part];
  }
  joint.graph.outputs.pop_back();
  joint.graph.nodes.erase(pack, scatter + 1);
  return {};
}

}  // namespace penstock
