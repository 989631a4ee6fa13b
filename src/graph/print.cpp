#include "graph/print.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/units.h"

namespace penstock {
namespace {

std::string_view DtypeName(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "f32";
    case c10::ScalarType::Double:
      return "f64";
    case c10::ScalarType::BFloat16:
      return "bf16";
    case c10::ScalarType::Half:
      return "f16";
    case c10::ScalarType::Long:
      return "i64";
    case c10::ScalarType::Int:
      return "i32";
    case c10::ScalarType::Bool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

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

// Tensors in order, constants by name where they are not the op's default.
std::string PrintArguments(const Node& node) {
  const auto& expected = node.op.schema().arguments();
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      texts.push_back(PrintId(*id));
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      texts.push_back(fmt::format("[{}]", PrintIds(*list)));
    } else if (const auto& constant = std::get<c10::IValue>(argument);
               !IsDefault(expected[i], constant)) {
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
  std::string what = bound.name.empty() ? "constant" : fmt::format("constant {}", bound.name);
  if (bound.kind == BoundKind::kParameter) {
    what = fmt::format("parameter {} {}", bound.index, bound.name);
  } else if (bound.kind == BoundKind::kGradient) {
    what = fmt::format("gradient {} {}", bound.index, bound.name);
  }
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
  // A view stands once, before its first reader.
  void PrintView(ValueId id) {
    const TensorValue& value = graph_.value(id);
    if (value.view_of == kNoValue || !printed_.insert(id).second) return;
    text_ += fmt::format("  {} = view %{}", PrintValue(graph_, id), value.view_of);
    if (value.view_offset != 0) text_ += fmt::format(" + {}", value.view_offset);
    text_ += '\n';
  }

  void PrintNode(const Node& node) {
    ForEachInput(node, [&](ValueId id) { PrintView(id); });
    std::vector<std::string> outputs;
    std::int64_t bytes = 0;
    for (const ValueId output : node.outputs) {
      outputs.push_back(PrintValue(graph_, output));
      if (output != kNoValue) bytes += BytesOf(graph_.value(output).type);
    }
    const bool changes = MutatedArgument(node.op.schema()) >= 0;
    text_ += "  ";
    if (!changes) text_ += fmt::format("{} {} = ", fmt::join(outputs, ", "), FormatBytes(bytes));
    text_ += fmt::format("{}({})\n", c10::toString(node.op.operator_name()), PrintArguments(node));
  }

  const Graph& graph_;
  std::string text_;
  std::set<ValueId> printed_;
};

}  // namespace

std::string PrintConstant(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return fmt::format("{}", value.toInt());
  if (value.isDouble()) return fmt::format("{}", value.toDouble());
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

std::string PrintType(const TensorType& type) {
  std::string text = fmt::format("{}[{}]", DtypeName(type.dtype), fmt::join(type.sizes, ","));
  if (!IsContiguous(type)) text += fmt::format("/[{}]", fmt::join(type.strides, ","));
  return text;
}

std::string PrintGraph(const Graph& graph) { return Printer(graph).Print(); }

std::string PrintDot(const Graph& graph) {
  std::string text = fmt::format("digraph {} {{\n  node [shape=box];\n", graph.name);
  std::vector<int> maker(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text += fmt::format("  n{} [label=\"{}\"];\n", i, c10::toString(node.op.operator_name()));
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) maker[static_cast<std::size_t>(output)] = static_cast<int>(i);
    }
  }
  const auto edge = [&](ValueId id, const std::string& to) {
    const ValueId root = graph.Root(id);
    const int from = maker[static_cast<std::size_t>(root)];
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
