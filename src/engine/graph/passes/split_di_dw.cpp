// Splits backward into I and W, so that input gradients are sent early and W can run later.
//
//   before:  backward(saved)               -> input gradients; adds to parameter gradients
//   after:   backward_input(saved)         -> input gradients, live
//            backward_weight(saved, live);  adds to parameter gradients
//
// Rule: a node is in backward_input if and only if an input gradient depends on it. `live` are the
// results of backward_input that backward_weight reads. Without input gradients, all nodes are in
// backward_weight. Order: after gradients are accumulated, so that the additions are split, too.
#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {

Status SplitInputWeight(StageGraphs& graphs, const CompileOptions&) {
  const Graph& backward = graphs.backward;
  const std::vector<bool> early = NeededNodes(backward, backward.outputs, /*effects=*/false);
  Graph& input = graphs.backward_input;
  Graph& weight = graphs.backward_weight;
  input = EmptyLike(backward, "backward_input");
  weight = EmptyLike(backward, "backward_weight");
  for (std::size_t i = 0; i < backward.nodes.size(); ++i) {
    (early[i] ? input : weight).nodes.push_back(backward.nodes[i]);
  }
  input.outputs = backward.outputs;
  input.inputs = FreeValues(input);
  weight.inputs = FreeValues(weight);

  const ValueSet produced = ProducedValues(input);
  for (const ValueId value : weight.inputs) {
    if (produced.contains(value)) graphs.live.push_back(value);
  }
  input.outputs.insert(input.outputs.end(), graphs.live.begin(), graphs.live.end());
  PruneBound(input);
  PruneBound(weight);
  return {};
}

}  // namespace penstock
