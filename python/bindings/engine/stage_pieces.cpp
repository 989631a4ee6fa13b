#include "bindings/engine/stage_pieces.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "bindings/engine/throw_errors.h"
#include "graph/ir/graph_tools.h"
#include "graph/overlap_stages.h"
#include "train/stage/stage_spec.h"

namespace penstock::python {
namespace {

nb::object ValueOrNone(ValueId value) { return value == kNoValue ? nb::none() : nb::cast(value); }

nb::list ListOf(const c10::List<bool>& values) {
  nb::list list;
  for (const bool value : values) list.append(nb::bool_(value));
  return list;
}

c10::TypeKind KindOf(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind();
}

nb::object Plain(const c10::IValue& value) {
  if (value.isNone()) return nb::none();
  if (value.isBool()) return nb::cast(value.toBool());
  if (value.isInt()) return nb::cast(value.toInt());
  if (value.isDouble()) return nb::cast(value.toDouble());
  if (value.isString()) return nb::cast(value.toStringRef());
  if (value.isTensor()) return value.toTensor().defined() ? nb::cast(value.toTensor()) : nb::none();
  if (value.isDevice()) return nb::cast(value.toDevice().str());
  if (value.isIntList()) return nb::cast(value.toIntVector());
  if (value.isDoubleList()) return nb::cast(value.toDoubleVector());
  if (value.isBoolList()) return ListOf(value.toBoolList());
  throw std::runtime_error(fmt::format(
      "a graph has a constant of type {}, which Python data cannot have", value.tagKind()));
}

// Returns (kind, value). The kinds are "value", "values" (a list), "constant", and of constants
// with a type of torch "dtype" (its name), "layout", "memory_format" (their numbers) and "device".
nb::tuple ArgumentOf(const Argument& argument, const c10::Argument& declared) {
  if (const auto* value = std::get_if<ValueId>(&argument)) {
    return nb::make_tuple("value", ValueOrNone(*value));
  }
  if (const auto* values = std::get_if<std::vector<ValueId>>(&argument)) {
    nb::list list;
    for (const ValueId value : *values) list.append(ValueOrNone(value));
    return nb::make_tuple("values", list);
  }
  const c10::IValue& constant = std::get<c10::IValue>(argument);
  const c10::TypeKind kind = KindOf(declared);
  // Random ops draw from the generator of the device.
  if (constant.isNone() || kind == c10::TypeKind::GeneratorType) {
    return nb::make_tuple("constant", nb::none());
  }
  if (kind == c10::TypeKind::ScalarTypeType) {
    const std::string name(c10::getDtypeNames(constant.toScalarType()).first);
    return nb::make_tuple("dtype", name);
  }
  if (kind == c10::TypeKind::LayoutType) return nb::make_tuple("layout", constant.toInt());
  if (kind == c10::TypeKind::MemoryFormatType) {
    return nb::make_tuple("memory_format", constant.toInt());
  }
  return nb::make_tuple(constant.isDevice() ? "device" : "constant", Plain(constant));
}

nb::tuple NodeOf(const Node& node) {
  const c10::FunctionSchema& schema = node.op.schema();
  nb::list arguments, outputs;
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    arguments.append(ArgumentOf(node.arguments[i], schema.arguments()[i]));
  }
  for (const ValueId output : node.outputs) outputs.append(ValueOrNone(output));
  return nb::make_tuple(schema.name(), schema.overload_name(), arguments, outputs);
}

nb::tuple BoundOf(const Bound& bound) {
  const char* kind = bound.kind == BoundKind::kParameter  ? "parameter"
                     : bound.kind == BoundKind::kGradient ? "gradient"
                                                          : "tensor";
  return nb::make_tuple(bound.value, kind, bound.index,
                        HasTensor(bound.kind) ? nb::cast(bound.tensor) : nb::none());
}

std::set<ValueId> ValuesOf(const Graph& graph) {
  std::set<ValueId> values(graph.inputs.begin(), graph.inputs.end());
  values.insert(graph.outputs.begin(), graph.outputs.end());
  for (const Bound& bound : graph.bound) values.insert(bound.value);
  for (const Node& node : graph.nodes) {
    ForEachInput(node, [&](ValueId id) { values.insert(id); });
    values.insert(node.outputs.begin(), node.outputs.end());
  }
  values.erase(kNoValue);
  std::set<ValueId> roots;
  for (const ValueId value : values) roots.insert(graph.Root(value));
  values.merge(roots);
  return values;
}

nb::tuple PieceOf(const StagePiece& piece) {
  const Graph& graph = piece.graph;
  nb::list inputs, outputs, bound, nodes;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    inputs.append(nb::make_tuple(graph.inputs[i], piece.inputs[i], bool(piece.last[i])));
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    outputs.append(nb::make_tuple(ValueOrNone(graph.outputs[i]), piece.outputs[i]));
  }
  for (const Bound& each : graph.bound) bound.append(BoundOf(each));
  for (const Node& node : graph.nodes) nodes.append(NodeOf(node));
  nb::dict types;
  for (const ValueId value : ValuesOf(graph)) {
    const TensorValue& tensor = graph.value(value);
    types[nb::cast(value)] =
        nb::make_tuple(tensor.type.sizes, tensor.type.strides, tensor.view_of, tensor.view_offset);
  }
  return nb::make_tuple(inputs, outputs, bound, nodes, types);
}

nb::list PortsOf(std::span<const StagePort> ports) {
  nb::list list;
  for (const StagePort& port : ports) list.append(nb::make_tuple(port.slot, port.has_gradient));
  return list;
}

}  // namespace

StagePieces::StagePieces(const StageParts& parts, bool is_first, bool is_last, bool captures_only)
    : parameters_(static_cast<int>(parts.parameters.size())),
      device_(parts.inputs.front().device()) {
  const auto module = std::make_shared<PythonStage>(parts.functions, parts.parameters, parts.state);
  TorchStageOptions options;
  options.schedule.first = is_first;
  options.schedule.last = is_last;
  options.compile.fingerprints = true;
  options.compile.captures_only = captures_only;
  options.compile.divides_first = true;
  options.compile.disabled = {"sum_once"};  // It leaves sums to the end of the engine's step.
  const nb::gil_scoped_release no_gil;
  auto programs = ValueOrThrow(CompileSlices(module, {parts.inputs, parts.targets}, options));
  program_ = std::move(programs.front());
}

std::optional<CaptureDifference> StagePieces::FindDifference(const StagePieces& other) const {
  return penstock::FirstDifference(program_.captured, other.program_.captured);
}

Tensors StagePieces::ExampleOutputs() const { return ExamplesOf(program_.outputs, device_); }

nb::tuple StagePieces::Ports() const {
  return nb::make_tuple(program_.slots, PortsOf(program_.inputs), PortsOf(program_.outputs),
                        program_.updated_buffers);
}

nb::tuple StagePieces::Pieces() const {
  return nb::make_tuple(PieceOf(program_.forward), PieceOf(program_.backward_input),
                        PieceOf(program_.backward_weight));
}

nb::object StagePieces::Pair(const StagePieces& backward, bool is_same_stage) const {
  const StageProgram& second = backward.program_;
  if (!(program_.exchanges || second.exchanges) || (program_.random && second.backward_random)) {
    return nb::none();
  }
  StagePiece piece =
      ValueOrThrow(OverlapStages(program_, second, is_same_stage ? 0 : parameters_, /*costs=*/{}));
  const auto of_backward = program_.forward.inputs.size();
  for (std::size_t i = of_backward; i < piece.inputs.size(); ++i) piece.inputs[i] += program_.slots;
  return PieceOf(piece);
}

}  // namespace penstock::python
