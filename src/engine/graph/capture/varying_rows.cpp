#include "graph/capture/varying_rows.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace penstock {
namespace {

// Ops that are not pointwise and whose results have the rows of their first argument.
constexpr std::array<std::string_view, 8> kRowwise = {"aten::clone",
                                                      "aten::_to_copy",
                                                      "aten::zeros_like",
                                                      "aten::ones_like",
                                                      "aten::empty_like",
                                                      "aten::full_like",
                                                      "penstock::grouped_linear",
                                                      "penstock::grouped_linear_input"};
// Ops whose results have no rows of their arguments.
constexpr std::array<std::string_view, 2> kReducing = {"penstock::grouped_linear_weight",
                                                       "penstock::grouped_linear_weight_"};
constexpr std::string_view kExchange = "penstock::all_to_all_rows";
constexpr std::size_t kRowsOfExchange = 3;  // the argument; below 0 if they vary

// A pointwise op with a tensor of as many rows as the example has would fail in other runs.
bool IsBroadcast(const TensorType& type, const TensorType& varying) {
  return type.sizes.size() < varying.sizes.size() || type.sizes[0] == 1;
}

// Returns whether the node computes each element from the elements at the same place.
bool IsPointwise(const Node& node, const Graph& graph, const TensorType& varying) {
  bool fits = node.op.hasTag(at::Tag::pointwise);
  ForEachInput(node, [&](ValueId id) {
    const TensorType& type = graph.value(id).type;
    fits = fits && (type.rows_vary || IsBroadcast(type, varying));
  });
  return fits;
}

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Result<bool> ResultRowsVary(const Node& node, const Graph& graph) {
  const std::string_view name = node.op.operator_name().name;
  if (name == kExchange) {
    return std::get<c10::IValue>(node.arguments[kRowsOfExchange]).toInt() < 0;
  }
  const TensorType* varying = nullptr;
  ForEachInput(node, [&](ValueId id) {
    if (graph.value(id).type.rows_vary) varying = &graph.value(id).type;
  });
  if (varying == nullptr || Contains(kReducing, name)) return false;
  if (Contains(kRowwise, name) || IsPointwise(node, graph, *varying)) return true;
  return InvalidArgument(
      "{} reads a tensor whose number of rows depends on the routing; only pointwise ops and "
      "grouped matmuls can",
      c10::toString(node.op.operator_name()));
}

}  // namespace penstock
