// Accumulates parameter gradients inside the graph.
//
// AccumulateGradients: add_(accumulator, gradient) follows the node that computes the gradient,
// which is no longer an output of backward. Accumulators have JointGraph::gradient_dtype, except of
// fp64 parameters.
// Order: before the split, which then treats the additions as any other node.
//
// AccumulateInMatmul: if the gradient is the result of a matmul (or its transpose) and nothing else
// reads it, addmm_(accumulator, a, b) replaces both nodes. The same holds for grouped matmuls. This
// saves a pass over the weights. Sums are rounded differently (by about 1e-7 in fp32), so it runs
// only if `exact` is off. 16-bit accumulators are left alone: bf16 matmuls that add to their result
// are slow on most CPUs.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <map>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// Returns whether `view` is the transpose of its whole 2-D root.
bool IsTranspose(const Graph& graph, ValueId view) {
  const TensorValue& value = graph.value(view);
  if (value.view_of == kNoValue || value.view_offset != 0) return false;
  const TensorType& type = value.type;
  const TensorType& root = graph.value(value.view_of).type;
  return type.sizes.size() == 2 && root.sizes.size() == 2 && type.dtype == root.dtype &&
         type.sizes[0] == root.sizes[1] && type.sizes[1] == root.sizes[0] &&
         type.strides[0] == root.strides[1] && type.strides[1] == root.strides[0];
}

// Returns the node that adds the result of `matmul` to the accumulator.
Node AddingMatmul(Graph& graph, const Node& matmul, ValueId accumulator, bool transposed) {
  const std::vector<Argument>& factors = matmul.arguments;
  if (IsOp(matmul, "penstock::grouped_linear_weight")) {
    static const c10::OperatorHandle grouped = FindOp("penstock::grouped_linear_weight_", "");
    return {
        grouped, {accumulator, factors[0], factors[1], factors[2]}, {kNoValue}, Phase::kBackward};
  }
  static const c10::OperatorHandle addmm = FindOp("aten::addmm_", "");
  const ValueId target = transposed ? Transpose(graph, accumulator) : accumulator;
  const c10::IValue one(std::int64_t{1});
  return {addmm, {target, factors[0], factors[1], one, one}, {kNoValue}, Phase::kBackward};
}

}  // namespace

Status AccumulateGradients(StageGraphs& graphs, const CompileOptions&) {
  Graph& backward = graphs.backward;
  const c10::OperatorHandle add = FindOp("aten::add_", "Tensor");
  std::map<ValueId, std::vector<Node>> after;  // additions, by the root that they read
  const std::size_t first = graphs.joint.input_gradients().size();
  for (std::size_t i = first; i < backward.outputs.size(); ++i) {
    const ValueId gradient = backward.outputs[i];
    if (gradient == kNoValue) continue;
    const auto index = static_cast<int>(i - first);
    const Bound& parameter = graphs.joint.parameters[index];
    TensorType type = backward.value(parameter.value).type;
    if (type.dtype != c10::kDouble) type.dtype = graphs.joint.gradient_dtype;
    const ValueId accumulator = backward.AddValue({type, kNoValue, 0});
    backward.bound.push_back(
        {accumulator, BoundKind::kGradient, index, parameter.name, at::Tensor()});
    after[backward.Root(gradient)].push_back(
        {add, {accumulator, gradient, c10::IValue(std::int64_t{1})}, {kNoValue}, Phase::kBackward});
  }
  backward.outputs.resize(first);

  std::vector<Node> nodes;
  const auto add_after = [&](ValueId root) {
    const auto found = after.find(root);
    if (found == after.end()) return;
    for (Node& node : found->second) nodes.push_back(std::move(node));
    after.erase(found);
  };
  for (const Bound& bound : backward.bound) add_after(bound.value);
  for (const ValueId input : backward.inputs) add_after(input);
  for (Node& node : backward.nodes) {
    const std::vector<ValueId> outputs = node.outputs;
    nodes.push_back(std::move(node));
    for (const ValueId output : outputs) add_after(output);
  }
  backward.nodes = std::move(nodes);
  return {};
}

Status AccumulateInMatmul(StageGraphs& graphs, const CompileOptions& options) {
  if (options.exact) return {};
  Graph& backward = graphs.backward;
  const c10::OperatorHandle add = FindOp("aten::add_", "Tensor");
  const std::vector<int> readers = CountReaders(backward);
  std::map<ValueId, std::size_t> matmuls;  // by result: index of the node
  std::vector<bool> dead(backward.nodes.size());
  for (std::size_t i = 0; i < backward.nodes.size(); ++i) {
    Node& node = backward.nodes[i];
    if (IsOp(node, "aten::mm") || IsOp(node, "penstock::grouped_linear_weight")) {
      matmuls[node.outputs.front()] = i;
    }
    if (!(node.op == add)) continue;
    const ValueId accumulator = std::get<ValueId>(node.arguments[0]);
    const ValueId gradient = std::get<ValueId>(node.arguments[1]);
    const ValueId root = backward.Root(gradient);
    const auto found = matmuls.find(root);
    const bool transposed = IsTranspose(backward, gradient);
    const c10::ScalarType dtype = backward.value(accumulator).type.dtype;
    if (found == matmuls.end() || readers[root] != 1 || (gradient != root && !transposed) ||
        dtype != backward.value(root).type.dtype || c10::isReducedFloatingType(dtype)) {
      continue;
    }
    node = AddingMatmul(backward, backward.nodes[found->second], accumulator, transposed);
    dead[found->second] = true;
  }
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < dead.size(); ++i) {
    if (!dead[i]) nodes.push_back(std::move(backward.nodes[i]));
  }
  backward.nodes = std::move(nodes);
  return {};
}

}  // namespace penstock
