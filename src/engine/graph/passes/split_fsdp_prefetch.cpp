// Moves the all-gather of sharded weights to a graph of its own.
//
//   before:  joint:    %w = penstock::all_gather(%shard);  %p = view of %w;  y = mm(x, %p)
//   after:   unshard:  %w = penstock::all_gather(%shard)
//            joint:    y = mm(x, %p), where %p is a bound parameter
//
// UNSHARD runs `unshard` as early as the schedule places it, once for several microbatches. The
// caller points the parameters to the result. (After the pass of the same name in torchtitan's
// GraphPP.) Order: first, so that weights are parameters to all other passes.
#include <algorithm>

#include "graph/capture/shard_parameters.h"
#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// The sharded parameters become bound values again, and views of the sequence views of them.
void BindParameters(JointGraph& joint, ValueId all) {
  Graph& graph = joint.graph;
  const ParameterSharding& sharding = *joint.sharding;
  const c10::ScalarType dtype = graph.value(all).type.dtype;
  std::vector<Bound> parameters;
  for (std::size_t i = 0; i < joint.parameters.size(); ++i) {
    if (!sharding.sharded(i)) continue;
    const Bound& parameter = joint.parameters[i];
    const std::int64_t begin = sharding.starts[i];
    const std::int64_t end = begin + ExtentOf(graph.value(parameter.value).type);
    for (TensorValue& value : graph.values) {
      // The position in elements of the sequence.
      const std::int64_t position = value.view_offset *
                                    static_cast<std::int64_t>(c10::elementSize(value.type.dtype)) /
                                    static_cast<std::int64_t>(c10::elementSize(dtype));
      if (value.view_of != all || position < begin || position >= end) continue;
      value.view_of = parameter.value;
      value.view_offset = MovedOffset(value, dtype, -begin);
    }
    graph.values[Index(parameter.value)].view_of = kNoValue;
    parameters.push_back(parameter);
  }
  graph.bound.insert(graph.bound.begin(), parameters.begin(), parameters.end());
}

}  // namespace

Status SplitFsdpPrefetch(StageGraphs& graphs, const CompileOptions&) {
  JointGraph& joint = graphs.joint;
  if (!joint.sharding || !joint.sharding->weights) return {};
  const auto shard = std::ranges::find(joint.graph.bound, BoundKind::kWeightShard, &Bound::kind);
  if (shard == joint.graph.bound.end()) return {};  // no parameter is sharded
  const auto gather = std::ranges::find_if(joint.graph.nodes, [&](const Node& node) {
    return IsOp(node, "penstock::all_gather") &&
           std::get<ValueId>(node.arguments[0]) == shard->value;
  });
  const ValueId all = gather->outputs.front();
  graphs.unshard = EmptyLike(joint.graph, "unshard");
  graphs.unshard.nodes = {*gather};
  graphs.unshard.outputs = {all};
  PruneBound(graphs.unshard);
  joint.graph.nodes.erase(gather);
  joint.graph.bound.erase(shard);
  BindParameters(joint, all);
  return {};
}

}  // namespace penstock
