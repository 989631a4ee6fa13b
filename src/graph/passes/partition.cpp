// Cuts the joint graph where its backward begins.
//
//   before:  joint(stage inputs, output gradient) -> output, gradients
//   after:   forward(stage inputs)                          -> output, saved
//            backward(saved, stage inputs, output gradient) -> input gradient, parameter gradients
//
// Rule: what backward reads and forward made is saved. A view is never saved: its root is, whose
// memory it would hold anyway, and backward makes the view again for nothing. Parameters and
// constants are no saved values: they are there.
#include <vector>

#include "graph/graph_tools.h"
#include "graph/passes.h"

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
  for (const ValueId input : joint.graph.inputs) {
    if (input != joint.output_gradient) forward.inputs.push_back(input);
  }
  backward.outputs = {joint.input_gradient()};
  for (const ValueId gradient : joint.parameter_gradients()) backward.outputs.push_back(gradient);

  backward.inputs = FreeValues(backward);
  const ValueSet given(joint.graph, joint.graph.inputs);
  for (const ValueId value : backward.inputs) {
    if (!given.contains(value)) graphs.saved.push_back(value);
  }
  forward.outputs = {joint.output()};
  forward.outputs.insert(forward.outputs.end(), graphs.saved.begin(), graphs.saved.end());
  PruneBound(forward);
  PruneBound(backward);
  return {};
}

}  // namespace penstock
