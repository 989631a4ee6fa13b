// Splits backward so that the input gradients leave early and weight gradients can wait.
//
//   before:  backward(saved)         -> input gradients; adds to parameter gradients
//   after:   backward_input(saved)   -> input gradients, live
//            backward_weight(saved, live) ; adds to parameter gradients
//
// Rule: a node belongs to backward_input if and only if an input gradient needs it. `live` is what
// backward_weight reads of backward_input's results. Without an input gradient, everything belongs
// to backward_weight. Order: after gradients are accumulated, so that the additions are split, too.
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

  const ValueSet made = MadeValues(input);
  for (const ValueId value : weight.inputs) {
    if (made.contains(value)) graphs.live.push_back(value);
  }
  input.outputs.insert(input.outputs.end(), graphs.live.begin(), graphs.live.end());
  PruneBound(input);
  PruneBound(weight);
  return {};
}

}  // namespace penstock
