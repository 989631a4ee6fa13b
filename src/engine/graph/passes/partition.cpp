// Splits the joint graph into forward and backward.
//
//   before:  joint(stage inputs, output gradients) -> outputs, gradients
//   after:   forward(stage inputs)                           -> outputs, saved
//            backward(saved, stage inputs, output gradients) -> input gradients, parameter
//            gradients
//
// Rule: saves the values that forward produces and backward reads. Saves the root of a view, whose
// memory the view would keep alive anyway; backward creates the view again for free. Parameters and
// constants are not saved.

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {

Status Partition(StageGraphs& graphs, const CompileOptions&) {
  const JointGraph& joint = graphs.joint;
  Graph& forward = graphs.forward;
  Graph& backward = graphs.backward;
  forward = EmptyLike(joint.graph, "forward");
  backward = EmptyLike(joint.graph, "backward");
  for (const Node& node : joint.graph.nodes) {
    (node.phase == Phase::kForward ? forward : backward).nodes.push_back(node);
  }
  const ValueSet output_gradients(joint.graph, joint.output_gradients);
  for (const ValueId input : joint.graph.inputs) {
    if (!output_gradients.contains(input)) forward.inputs.push_back(input);
  }
  const auto gradients = joint.input_gradients();
  backward.outputs.assign(gradients.begin(), gradients.end());
  for (const ValueId gradient : joint.parameter_gradients()) backward.outputs.push_back(gradient);

  backward.inputs = FreeValues(backward);
  const ValueSet inputs(joint.graph, joint.graph.inputs);
  for (const ValueId value : backward.inputs) {
    if (!inputs.contains(value)) graphs.saved.push_back(value);
  }
  forward.outputs.assign(joint.outputs().begin(), joint.outputs().end());
  forward.outputs.insert(forward.outputs.end(), graphs.saved.begin(), graphs.saved.end());
  PruneBound(forward);
  PruneBound(backward);
  return {};
}

}  // namespace penstock
