#include "graph/ir/flops.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/ir/graph_tools.h"
#include "graph/ir/ops_without_flops.h"

namespace penstock {
namespace {

using Sizes = std::vector<std::int64_t>;

Sizes SizesOf(const Graph& graph, const Node& node, std::size_t argument) {
  return graph.value(std::get<ValueId>(node.arguments[argument])).type.sizes;
}

std::int64_t Product(const Sizes& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

// [..., n, k] by [..., k, m]: the arguments `first` and `first` + 1.
std::int64_t Matmul(const Graph& graph, const Node& node, std::size_t first) {
  return 2 * Product(SizesOf(graph, node, first)) * SizesOf(graph, node, first + 1).back();
}

// [..., k] by the transpose of a weight [m, k].
std::int64_t Linear(const Graph& graph, const Node& node) {
  return 2 * Product(SizesOf(graph, node, 0)) * SizesOf(graph, node, 1).front();
}

// Either [rows, k], whose rows are in groups, by the matrix [k, m] of each group. Or the gradient
// of these matrices: the columns of [k, rows] by the rows of [rows, m], per group. In both cases,
// each row is multiplied once.
std::int64_t GroupedMatmul(const Graph& graph, const Node& node) {
  return 2 * Product(SizesOf(graph, node, 0)) * SizesOf(graph, node, 1).back();
}

// `products` matmuls with the sizes of query [batch, heads, rows, dim] times transposed key [batch,
// heads, columns, dim].
std::int64_t AttentionFlops(const Graph& graph, const Node& node, std::size_t query, int products) {
  const Sizes key = SizesOf(graph, node, query + 1);
  return 2 * products * Product(SizesOf(graph, node, query)) * key[key.size() - 2];
}

// Of `products` convolutions with these sizes, transposed or not, as FlopCounterMode counts them.
std::int64_t Convolution(const Graph& graph, const Node& node, std::size_t input,
                         const Sizes& output, std::size_t weight, bool transposed) {
  const Sizes of_weight = SizesOf(graph, node, weight);
  const Sizes outer = transposed ? SizesOf(graph, node, input) : output;
  return 2 * Product(outer) * Product(of_weight) / of_weight.front();
}

std::int64_t ConvolutionForward(const Graph& graph, const Node& node) {
  const Sizes output = graph.value(node.outputs.front()).type.sizes;
  return Convolution(graph, node, 0, output, 1, std::get<c10::IValue>(node.arguments[6]).toBool());
}

// The gradients of the input and of the weight cost as much as the forward.
std::int64_t ConvolutionBackward(const Graph& graph, const Node& node) {
  const bool transposed = std::get<c10::IValue>(node.arguments[7]).toBool();
  const auto gradients =
      (node.outputs[0] != kNoValue ? 1 : 0) + (node.outputs[1] != kNoValue ? 1 : 0);
  return gradients * Convolution(graph, node, 1, SizesOf(graph, node, 0), 2, transposed);
}

struct Rule {
  std::string_view name;
  std::int64_t (*flops)(const Graph& graph, const Node& node);
};

constexpr std::array kFlopRules = {
    Rule{"aten::mm", [](const Graph& g, const Node& n) { return Matmul(g, n, 0); }},
    Rule{"aten::bmm", [](const Graph& g, const Node& n) { return Matmul(g, n, 0); }},
    Rule{"aten::addmm", [](const Graph& g, const Node& n) { return Matmul(g, n, 1); }},
    Rule{"aten::addmm_", [](const Graph& g, const Node& n) { return Matmul(g, n, 1); }},
    Rule{"aten::baddbmm", [](const Graph& g, const Node& n) { return Matmul(g, n, 1); }},
    Rule{"aten::_grouped_mm", GroupedMatmul},
    Rule{"penstock::grouped_linear",
         [](const Graph& g, const Node& n) {
           return 2 * Product(SizesOf(g, n, 0)) * SizesOf(g, n, 1)[1];
         }},
    Rule{"penstock::grouped_linear_input", GroupedMatmul},
    Rule{"penstock::grouped_linear_weight", GroupedMatmul},
    Rule{"penstock::grouped_linear_weight_",
         [](const Graph& g, const Node& n) {
           return 2 * Product(SizesOf(g, n, 1)) * SizesOf(g, n, 2).back();
         }},
    Rule{"aten::convolution", ConvolutionForward},
    Rule{"aten::convolution_backward", ConvolutionBackward},
    Rule{"aten::linear", Linear},
    Rule{"mkldnn::_linear_pointwise", Linear},
    Rule{"aten::_scaled_dot_product_flash_attention",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 0, 2); }},
    Rule{"aten::_scaled_dot_product_flash_attention_backward",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 1, 5); }},
    Rule{"aten::_scaled_dot_product_efficient_attention",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 0, 2); }},
    Rule{"aten::_scaled_dot_product_efficient_attention_backward",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 1, 5); }},
    Rule{"aten::_scaled_dot_product_cudnn_attention",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 0, 2); }},
    Rule{"aten::_scaled_dot_product_cudnn_attention_backward",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 1, 5); }},
    Rule{"aten::_scaled_dot_product_flash_attention_for_cpu",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 0, 2); }},
    // Recomputes the scores, then computes the gradients of value, scores, query and key.
    Rule{"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
         [](const Graph& g, const Node& n) { return AttentionFlops(g, n, 1, 5); }},
};

}  // namespace

Result<std::int64_t> FlopsOf(const Graph& graph, const Node& node) {
  for (const Rule& rule : kFlopRules) {
    if (IsOp(node, rule.name)) return rule.flops(graph, node);
  }
  if (HasNoFlops(node)) return 0;
  const auto number = &node - graph.nodes.data();
  return InvalidArgument(
      "graph {}, node {}: the FLOPs of {} are not known; add a rule to "
      "src/engine/graph/ir/flops.cpp",
      graph.name, number, c10::toString(node.op.operator_name()));
}

Result<std::int64_t> FlopsOf(const Graph& graph) {
  std::int64_t flops = 0;
  for (const Node& node : graph.nodes) {
    PENSTOCK_TRY(const std::int64_t of_node, FlopsOf(graph, node));
    flops += of_node;
  }
  return flops;
}

}  // namespace penstock
