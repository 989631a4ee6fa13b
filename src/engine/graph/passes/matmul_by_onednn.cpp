// Runs large matmuls of F and I in oneDNN if it is faster than the BLAS on this processor
// (kernel/processor.h).
//
//   before:  mm(a, b)
//   after:   mkldnn::_linear_pointwise(a, transpose(b))
//
// Sums are rounded differently (by about 1e-7 of the result in fp32), so it runs only if `exact` is
// off. Does not change weight gradients: their first factor is transposed, and the BLAS is faster.
// Order: after accumulate_in_matmul, which replaces the mm of weight gradients by addmm_.
#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

bool IsRowMajor(const TensorType& type) {
  return type.strides[1] == 1 && type.strides[0] == type.sizes[1];
}

bool IsFaster(const Graph& graph, const Node& node, const KernelChoice& choice) {
  const TensorType& a = graph.value(std::get<ValueId>(node.arguments[0])).type;
  const TensorType& b = graph.value(std::get<ValueId>(node.arguments[1])).type;
  const std::int64_t fewest = IsRowMajor(b) ? choice.onednn_plain : choice.onednn_transposed;
  return a.dtype == c10::kFloat && IsRowMajor(a) && a.sizes[0] * a.sizes[1] * b.sizes[1] >= fewest;
}

void Replace(Graph& graph, const KernelChoice& choice) {
  static const char* const kName = "mkldnn::_linear_pointwise";
  const auto linear = c10::Dispatcher::singleton().findSchema({kName, ""});
  if (!linear) return;  // a libtorch without oneDNN
  for (Node& node : graph.nodes) {
    if (c10::toString(node.op.operator_name()) != "aten::mm" || !IsFaster(graph, node, choice))
      continue;
    const ValueId b = Transpose(graph, std::get<ValueId>(node.arguments[1]));
    node.op = *linear;
    node.arguments = {node.arguments[0],
                      b,
                      c10::IValue(),
                      c10::IValue("none"),
                      c10::IValue(c10::List<std::optional<at::Scalar>>()),
                      c10::IValue("")};
  }
}

}  // namespace

Status MatmulByOneDnn(StageGraphs& graphs, const CompileOptions& options) {
  if (options.exact) return {};
  Replace(graphs.forward, options.kernels);
  Replace(graphs.backward, options.kernels);
  return {};
}

}  // namespace penstock
