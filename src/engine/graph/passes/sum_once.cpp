// Leaves sums of gradients over other processes to the end of the step.
//
//   before:  %2 = c10d_all_reduce(%1, "sum", group)   the gradient of a parameter: %2
//   after:   the gradient of the parameter: %1, which the stage sums over the group once per step
//
// Stages that divide tokens compute partial gradients of norms on each process. A sum of sums over
// microbatches is the sum over microbatches of sums, up to rounding, in one collective instead of
// one per parameter and microbatch.
// Rule: sums and means whose result is only a gradient of a parameter. Order: see the pass table.
#include <algorithm>
#include <map>
#include <string>

#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

bool IsSumOrMean(const Node& node) {
  if (!IsOp(node, "penstock::c10d_all_reduce")) return false;
  const std::string& op = Constant(node, 1).toStringRef();
  return op == "sum" || op == "avg";
}

}  // namespace

Status SumOnce(StageGraphs& graphs, const CompileOptions&) {
  Graph& graph = graphs.joint.graph;
  const std::vector<int> readers = CountReaders(graph);
  std::map<ValueId, const Node*> sums;  // by result
  for (const Node& node : graph.nodes) {
    if (IsSumOrMean(node)) sums.emplace(node.outputs.front(), &node);
  }
  const std::size_t first = graphs.joint.output_gradients.size();
  for (std::size_t i = 0; i < graphs.joint.parameters.size() && !sums.empty(); ++i) {
    ValueId& gradient = graph.outputs[first + i];
    // The last sum comes first.
    std::vector<GradientSum> of_parameter;
    for (auto sum = sums.find(gradient); sum != sums.end() && readers[gradient] == 1;
         sum = sums.find(gradient)) {
      const Node& node = *sum->second;
      of_parameter.push_back({graphs.joint.parameters[i].name, GroupOf(node),
                              Constant(node, 1).toStringRef() == "avg"});
      gradient = std::get<ValueId>(node.arguments.front());
    }
    graphs.sums.insert(graphs.sums.end(), of_parameter.rbegin(), of_parameter.rend());
  }
  return {};
}

}  // namespace penstock
