#include "graph/capture/varying_rows.h"

#include <ATen/core/enum_tag.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock {
namespace {

// Ops, besides pointwise ones, whose results have the rows of their first argument.
constexpr std::array<std::string_view, 7> kRowwise = {
    "aten::clone",      "aten::_to_copy",           "aten::zeros_like", "aten::ones_like",
    "aten::empty_like", "penstock::grouped_linear", "aten::full_like"};
constexpr std::string_view kRowwiseGradient = "penstock::grouped_linear_input";
// Ops whose results have no rows of their arguments.
constexpr std::array<std::string_view, 2> kReducing = {"penstock::grouped_linear_weight",
                                                       "penstock::grouped_linear_weight_"};
constexpr std::string_view kExchange = "penstock::all_to_all_rows";
constexpr std::size_t kRowsOfExchange = 3;  // the argument; below 0 if they vary

// A pointwise op with a tensor of as many rows as the example has would fail in other runs.
bool IsBroadcast(const TensorType& type, const TensorType& varying) {
  return type.sizes.size() < varying.sizes.size() || type.sizes[0] == 1;
}

}  // namespace

std::optional<bool> ResultRowsVary(const c10::OperatorHandle& op,
                                   std::span<const Argument> arguments, const Graph& graph,
                                   std::string& fault) {
  const std::string_view name = op.operator_name().name;
  if (name == kExchange) {
    return std::get<c10::IValue>(arguments[kRowsOfExchange]).toInt() < 0;
  }
  const TensorType* varying = nullptr;
  for (const Argument& argument : arguments) {
    const auto* id = std::get_if<ValueId>(&argument);
    if (id != nullptr && graph.value(*id).type.rows_vary) varying = &graph.value(*id).type;
    const auto* list = std::get_if<std::vector<ValueId>>(&argument);
    if (list == nullptr) continue;
    for (const ValueId each : *list) {
      if (each != kNoValue && graph.value(each).type.rows_vary) varying = &graph.value(each).type;
    }
  }
  if (varying == nullptr) return false;
  if (std::ranges::find(kReducing, name) != kReducing.end()) return false;
  if (name == kRowwiseGradient || std::ranges::find(kRowwise, name) != kRowwise.end()) return true;
  const bool fits = std::ranges::all_of(arguments, [&](const Argument& argument) {
    const auto* id = std::get_if<ValueId>(&argument);
    if (id == nullptr) return !std::holds_alternative<std::vector<ValueId>>(argument);
    const TensorType& type = graph.value(*id).type;
    return type.rows_vary || IsBroadcast(type, *varying);
  });
  if (op.hasTag(at::Tag::pointwise) && fits) return true;
  fault = fmt::format(
      "{} reads a tensor whose number of rows depends on the routing; only pointwise ops and "
      "grouped matmuls can",
      c10::toString(op.operator_name()));
  return {};
}

}  // namespace penstock
