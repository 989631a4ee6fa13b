// Computes the backward of a mean cross-entropy in one op, which stores the gradient of the logits
// once.
//
//   before:  a = nll_loss_backward(g, log_p, target);  d = _log_softmax_backward_data(a, log_p)
//   after:   d = penstock::cross_entropy_backward(g, log_p, target)
//
// `a` is as large as the logits and has one nonzero number per row. The two ops round the number of
// a row's target twice and the new op may round it once, so the pass runs only if `exact` is off.
// Order: on the joint graph, where the two ops are still adjacent.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <torch/library.h>

#include <map>
#include <span>

#include "base/index.h"
#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

using c10::IValue;

constexpr std::int64_t kMean = 1;  // at::Reduction

// log_p is [rows, classes], target is [rows] int64, gradient and count (of targets that are not
// ignored) are scalars. Returns [rows, classes].
at::Tensor CrossEntropyBackward(const at::Tensor& gradient, const at::Tensor& log_p,
                                const at::Tensor& target, const at::Tensor& count,
                                std::int64_t ignored) {
  TORCH_CHECK(log_p.is_contiguous() && target.is_contiguous(),
              "penstock::cross_entropy_backward: log probabilities and targets must be contiguous");
  const float scale = gradient.item<float>() / count.item<float>();
  at::Tensor result = at::exp(log_p);
  const std::int64_t classes = result.size(1);
  auto* row = result.mutable_data_ptr<float>();
  for (const std::int64_t row_target :
       std::span(target.const_data_ptr<std::int64_t>(), Index(target.numel()))) {
    const bool used = row_target != ignored;
    const float factor = used ? scale : 0;  // an ignored row has no gradient
    for (std::int64_t i = 0; i < classes; ++i) row[i] *= factor;
    if (used) {
      TORCH_CHECK(row_target >= 0 && row_target < classes, "target ", row_target,
                  " is out of range: the number of classes is ", classes);
      row[row_target] -= scale;
    }
    row += classes;
  }
  return result;
}

at::Tensor CrossEntropyBackwardShape(const at::Tensor&, const at::Tensor& log_p, const at::Tensor&,
                                     const at::Tensor&, std::int64_t) {
  return at::empty_like(log_p);
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def(
      "cross_entropy_backward(Tensor gradient, Tensor log_p, Tensor target, Tensor count, "
      "int ignored) -> Tensor");
}
TORCH_LIBRARY_IMPL(penstock, CPU, library) {
  library.impl("cross_entropy_backward", CrossEntropyBackward);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  library.impl("cross_entropy_backward", CrossEntropyBackwardShape);
}

// Returns whether the node is nll_loss_backward(gradient, log_p, target, weight, reduction,
// ignored, count) of a mean without weights.
bool IsPlainLoss(const Graph& graph, const Node& node) {
  if (!IsOp(node, "aten::nll_loss_backward")) return false;
  const auto* weight = std::get_if<IValue>(&node.arguments[3]);
  if (weight == nullptr || (weight->isTensor() && weight->toTensor().defined())) return false;
  const TensorType& log_p = graph.value(std::get<ValueId>(node.arguments[1])).type;
  return std::get<IValue>(node.arguments[4]).toInt() == kMean && log_p.sizes.size() == 2 &&
         log_p.dtype == c10::kFloat;
}

}  // namespace

Status CrossEntropy(StageGraphs& graphs, const CompileOptions& options) {
  if (options.exact) return {};
  Graph& graph = graphs.joint.graph;
  const std::vector<int> readers = CountReaders(graph);
  const c10::OperatorHandle op = FindOp("penstock::cross_entropy_backward", "");
  std::map<ValueId, Node> losses;  // by result
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (IsPlainLoss(graph, node) && readers[node.outputs[0]] == 1) {
      losses.emplace(node.outputs[0], node);
    }
    if (IsOp(node, "aten::_log_softmax_backward_data")) {
      const auto found = losses.find(std::get<ValueId>(node.arguments[0]));
      if (found != losses.end() &&
          std::get<ValueId>(found->second.arguments[1]) == std::get<ValueId>(node.arguments[1])) {
        const std::vector<Argument>& loss = found->second.arguments;
        node.op = op;
        node.arguments = {loss[0], loss[1], loss[2], loss[6], loss[5]};
      }
    }
    nodes.push_back(std::move(node));
  }
  // remove_dead removes the nll_loss_backward nodes.
  graph.nodes = std::move(nodes);
  return {};
}

}  // namespace penstock
