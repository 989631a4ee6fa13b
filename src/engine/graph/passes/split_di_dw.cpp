// Splits backward into I and W, so that input gradients are sent early and W can run later.
//
//   before:  backward(saved)               -> input gradients; adds to parameter gradients
//   after:   backward_input(saved)         -> input gradients, live
//            backward_weight(saved, live);  adds to parameter gradients
//
// Rule: a node is in backward_input if and only if an input gradient depends on it. `live` are the
// results of backward_input that backward_weight reads. Without input gradients, all nodes are in
// backward_weight; or with `divides_first` only those that the gradient of a single parameter
// depends on, so that I and W take as long as those of other stages. Order: after gradients are
// accumulated, so that the additions are split, too.
#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// Returns, by node, whether the gradients of several parameters depend on it.
std::vector<bool> NodesOfSeveralGradients(const Graph& graph) {
  constexpr ValueId kSeveral = -2;
  std::vector<ValueId> reached(graph.values.size(), kNoValue);  // by root: a gradient, or several
  std::vector<bool> of_several(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const int mutated = MutatedArgument(node.op.schema());
    ValueId reaches =
        mutated < 0 ? kNoValue : graph.Root(std::get<ValueId>(node.arguments[mutated]));
    const auto add = [](ValueId& to, ValueId gradient) {
      if (gradient == kNoValue || gradient == to) return;
      to = to == kNoValue ? gradient : kSeveral;
    };
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) add(reaches, reached[Index(output)]);
    }
    of_several[i] = reaches == kSeveral;
    ForEachInput(node, [&](ValueId id) { add(reached[Index(graph.Root(id))], reaches); });
  }
  return of_several;
}

}  // namespace

Status SplitInputWeight(StageGraphs& graphs, const CompileOptions& options) {
  const Graph& backward = graphs.backward;
  const bool has_inputs =
      std::ranges::any_of(backward.outputs, [](ValueId id) { return id != kNoValue; });
  const std::vector<bool> early = has_inputs || !options.divides_first
                                      ? NeededNodes(backward, backward.outputs, /*effects=*/false)
                                      : NodesOfSeveralGradients(backward);
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
