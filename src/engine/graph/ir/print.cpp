#include "graph/ir/print.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/units.h"
#include "graph/ir/flops.h"

namespace penstock {
namespace {

struct DtypeText {
  c10::ScalarType dtype;
  std::string_view text;
};
constexpr std::array kDtypes = {
    DtypeText{c10::ScalarType::Float, "f32"},     DtypeText{c10::ScalarType::Double, "f64"},
    DtypeText{c10::ScalarType::BFloat16, "bf16"}, DtypeText{c10::ScalarType::Half, "f16"},
    DtypeText{c10::ScalarType::Long, "i64"},      DtypeText{c10::ScalarType::Int, "i32"},
    DtypeText{c10::ScalarType::Short, "i16"},     DtypeText{c10::ScalarType::Char, "i8"},
    DtypeText{c10::ScalarType::Byte, "u8"},       DtypeText{c10::ScalarType::Bool, "bool"},
};

std::string_view DtypeName(c10::ScalarType dtype) {
  for (const DtypeText& known : kDtypes) {
    if (known.dtype == dtype) return known.text;
  }
  return c10::toString(dtype);
}

constexpr std::array<std::pair<BoundKind, std::string_view>, 7> kBoundWords = {{
    {BoundKind::kParameter, "parameter"},
    {BoundKind::kConstant, "constant"},
    {BoundKind::kBuffer, "buffer"},
    {BoundKind::kGradient, "gradient"},
    {BoundKind::kWeightShard, "weight_shard"},
    {BoundKind::kUnreducedGradients, "unreduced_gradients"},
    {BoundKind::kGradientShard, "gradient_shard"},
}};

std::string PrintId(ValueId id) { return id == kNoValue ? "none" : fmt::format("%{}", id); }

std::string PrintIds(const std::vector<ValueId>& ids) {
  std::vector<std::string> texts;
  for (const ValueId id : ids) texts.push_back(PrintId(id));
  return fmt::format("{}", fmt::join(texts, ", "));
}

bool IsDefault(const c10::Argument& argument, const c10::IValue& value) {
  return argument.default_value().has_value() &&
         PrintConstant(*argument.default_value()) == PrintConstant(value);
}

// Prints tensors by position up to the first constant, and by name after it. Prints constants by
// name, and omits constants that equal the op's default.
std::string PrintArguments(const Node& node) {
  const auto& expected = node.op.schema().arguments();
  std::vector<std::string> texts;
  bool in_order = true;
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    const std::string name = in_order ? "" : expected[i].name() + "=";
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      texts.push_back(name + PrintId(*id));
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      texts.push_back(fmt::format("{}[{}]", name, PrintIds(*list)));
    } else {
      in_order = false;
      const auto& constant = std::get<c10::IValue>(argument);
      if (IsDefault(expected[i], constant)) continue;
      texts.push_back(fmt::format("{}={}", expected[i].name(), PrintConstant(constant)));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string PrintValue(const Graph& graph, ValueId id) {
  if (id == kNoValue) return "none";
  return fmt::format("%{}: {}", id, PrintType(graph.value(id).type));
}

std::string PrintBound(const Graph& graph, const Bound& bound) {
  const std::int64_t bytes = BytesOf(graph.value(bound.value).type);
  std::string what(WordFor(bound.kind));
  if (!HasTensor(bound.kind)) what += fmt::format(" {}", bound.index);
  if (!bound.name.empty()) what += " " + bound.name;
  return fmt::format("  bound {} {} = {}\n", PrintValue(graph, bound.value), FormatBytes(bytes),
                     what);
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string Print() {
    std::vector<std::string> inputs;
    for (const ValueId input : graph_.inputs) inputs.push_back(PrintValue(graph_, input));
    text_ = fmt::format("graph {}({}) -> ({})\n", graph_.name, fmt::join(inputs, ", "),
                        PrintIds(graph_.outputs));
    for (const Bound& bound : graph_.bound) text_ += PrintBound(graph_, bound);
    for (const Node& node : graph_.nodes) PrintNode(node);
    for (const ValueId output : graph_.outputs) {
      if (output != kNoValue) PrintView(output);
    }
    return text_;
  }

 private:
  // Prints a view once, before its first reader.
  void PrintView(ValueId id) {
    const TensorValue& value = graph_.value(id);
    if (value.view_of == kNoValue || !printed_.insert(id).second) return;
    text_ += fmt::format("  {} = view %{}", PrintValue(graph_, id), value.view_of);
    if (value.view_offset != 0) text_ += fmt::format(" + {}", value.view_offset);
    text_ += '\n';
  }

  void PrintNode(const Node& node) {
    if (node.phase != phase_) {
      text_ += node.phase == Phase::kBackward ? "  -- backward\n" : "  -- forward\n";
    }
    phase_ = node.phase;
    ForEachInput(node, [&](ValueId id) { PrintView(id); });
    std::vector<std::string> outputs;
    std::int64_t bytes = 0;
    for (const ValueId output : node.outputs) {
      outputs.push_back(PrintValue(graph_, output));
      if (output != kNoValue) bytes += BytesOf(graph_.value(output).type);
    }
    const bool has_results = std::any_of(node.outputs.begin(), node.outputs.end(),
                                         [](ValueId output) { return output != kNoValue; });
    text_ += "  ";
    if (has_results || MutatedArgument(node.op.schema()) < 0)
      text_ += fmt::format("{} {} = ", fmt::join(outputs, ", "), PrintCost(node, bytes));
    text_ += fmt::format("{}({})\n", c10::toString(node.op.operator_name()), PrintArguments(node));
  }

  std::string PrintCost(const Node& node, std::int64_t bytes) const {
    const std::int64_t flops = FlopsOf(graph_, node).value_or(0);
    return flops == 0 ? FormatBytes(bytes)
                      : fmt::format("{} {}", FormatBytes(bytes), FormatFlops(flops));
  }

  const Graph& graph_;
  Phase phase_ = Phase::kForward;
  std::string text_;
  std::set<ValueId> printed_;
};

}  // namespace

std::string_view WordFor(BoundKind kind) {
  for (const auto& [known, word] : kBoundWords) {
    if (known == kind) return word;
  }
  return {};
}

std::optional<BoundKind> KindFor(std::string_view word) {
  for (const auto& [kind, known] : kBoundWords) {
    if (known == word) return kind;
  }
  return {};
}

std::string PrintConstant(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return fmt::format("{}", value.toInt());
  if (value.isDouble()) {
    std::string text = fmt::format("{}", value.toDouble());
    // Without a point, it would parse as an integer.
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (value.isString()) return fmt::format("\"{}\"", value.toStringRef());
  if (value.isDevice()) return value.toDevice().str();
  if (value.isTensor()) return "undefined";
  if (value.isList()) {
    std::vector<std::string> texts;
    for (const c10::IValue& each : value.toListRef()) texts.push_back(PrintConstant(each));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  return value.tagKind();
}

bool HasExactText(const c10::IValue& value) {
  if (value.isList()) {
    const auto list = value.toListRef();
    return std::all_of(list.begin(), list.end(), HasExactText);
  }
  return value.isNone() || value.isBool() || value.isInt() || value.isDouble() ||
         value.isString() || value.isDevice() || (value.isTensor() && !value.toTensor().defined());
}

c10::ScalarType DtypeOf(std::string_view text) {
  for (const DtypeText& known : kDtypes) {
    if (known.text == text) return known.dtype;
  }
  return c10::ScalarType::Undefined;
}

std::string FormatFlops(std::int64_t flops) {
  constexpr std::array kUnits = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  auto value = static_cast<double>(flops);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string PrintType(const TensorType& type) {
  std::string text = fmt::format("{}[{}]", DtypeName(type.dtype), fmt::join(type.sizes, ","));
  if (!IsContiguous(type)) text += fmt::format("/[{}]", fmt::join(type.strides, ","));
  if (type.rows_vary) text += '~';
  return text;
}

std::string PrintGraph(const Graph& graph) { return Printer(graph).Print(); }

std::string PrintDot(const Graph& graph) {
  std::string text = fmt::format("digraph {} {{\n  node [shape=box];\n", graph.name);
  std::vector<int> producer(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text += fmt::format("  n{} [label=\"{}\"];\n", i, c10::toString(node.op.operator_name()));
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) producer[output] = static_cast<int>(i);
    }
  }
  const auto edge = [&](ValueId id, const std::string& to) {
    const ValueId root = graph.Root(id);
    const int from = producer[root];
    text += fmt::format("  {} -> {} [label=\"{}\"];\n",
                        from >= 0 ? fmt::format("n{}", from) : fmt::format("v{}", root), to,
                        PrintType(graph.value(id).type));
  };
  for (const Bound& bound : graph.bound) {
    text += fmt::format("  v{} [shape=ellipse, label=\"%{} {}\"];\n", bound.value, bound.value,
                        bound.name);
  }
  for (const ValueId input : graph.inputs) {
    text += fmt::format("  v{} [shape=ellipse, label=\"input %{}\"];\n", input, input);
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    ForEachInput(graph.nodes[i], [&](ValueId id) { edge(id, fmt::format("n{}", i)); });
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputs[i] == kNoValue) continue;
    text += fmt::format("  out{} [shape=ellipse, label=\"output {}\"];\n", i, i);
    edge(graph.outputs[i], fmt::format("out{}", i));
  }
  return text + "}\n";
}

}  // namespace penstock
