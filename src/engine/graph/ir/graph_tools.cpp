#include "graph/ir/graph_tools.h"

#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

namespace penstock {
namespace {

template <class Visit>
void ForEachRead(const Graph& graph, Visit&& visit) {
  for (const Node& node : graph.nodes) {
    ForEachInput(node, [&](ValueId id) { visit(graph.Root(id)); });
  }
  for (const ValueId output : graph.outputs) {
    if (output != kNoValue) visit(graph.Root(output));
  }
}

}  // namespace

Graph EmptyLike(const Graph& graph, std::string name) {
  Graph empty;
  empty.name = std::move(name);
  empty.values = graph.values;
  empty.bound = graph.bound;
  return empty;
}

ValueSet ProducedValues(const Graph& graph) {
  ValueSet produced(graph, {});
  for (const Node& node : graph.nodes) {
    for (const ValueId output : node.outputs) produced.insert(output);
  }
  return produced;
}

std::vector<ValueId> FreeValues(const Graph& graph) {
  ValueSet known = ProducedValues(graph);
  for (const Bound& bound : graph.bound) known.insert(bound.value);
  std::vector<ValueId> free;
  ForEachRead(graph, [&](ValueId root) {
    if (known.contains(root)) return;
    known.insert(root);
    free.push_back(root);
  });
  std::sort(free.begin(), free.end());
  return free;
}

std::vector<int> CountReaders(const Graph& graph) {
  std::vector<int> readers(graph.values.size());
  ForEachRead(graph, [&](ValueId root) { ++readers[root]; });
  return readers;
}

const c10::IValue& Constant(const Node& node, std::size_t argument) {
  return std::get<c10::IValue>(node.arguments[argument]);
}

c10::OperatorHandle FindOp(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::vector<bool> NeededNodes(const Graph& graph, std::span<const ValueId> values, bool effects) {
  ValueSet needed(graph, {});
  for (const ValueId value : values) {
    if (value != kNoValue) needed.insert(graph.Root(value));
  }
  std::vector<bool> nodes(graph.nodes.size());
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool use = effects && MutatedArgument(node.op.schema()) >= 0;
    for (const ValueId output : node.outputs) use = use || needed.contains(output);
    if (!use) continue;
    nodes[i] = true;
    ForEachInput(node, [&](ValueId id) { needed.insert(graph.Root(id)); });
  }
  return nodes;
}

bool ProducesStatedTypes(const Graph& graph, const Node& node) {
  const auto meta = [&](ValueId id) {
    const TensorType& type = graph.value(id).type;
    return at::empty_strided(type.sizes, type.strides,
                             at::TensorOptions().dtype(type.dtype).device(at::kMeta));
  };
  torch::jit::Stack stack;
  for (const Argument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      stack.emplace_back(meta(*id));
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      c10::List<at::Tensor> tensors;
      for (const ValueId each : *list) tensors.push_back(meta(each));
      stack.emplace_back(std::move(tensors));
    } else {
      stack.push_back(std::get<c10::IValue>(argument));
    }
  }
  const c10::InferenceMode inference;
  node.op.callBoxed(stack);
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (node.outputs[i] != kNoValue &&
        TypeOf(stack[i].toTensor()) != graph.value(node.outputs[i]).type) {
      return false;
    }
  }
  return true;
}

void PruneBound(Graph& graph) {
  ValueSet read(graph, {});
  ForEachRead(graph, [&](ValueId root) { read.insert(root); });
  std::erase_if(graph.bound, [&](const Bound& bound) { return !read.contains(bound.value); });
}

ValueId Transpose(Graph& graph, ValueId id) {
  TensorValue value = graph.value(id);
  std::swap(value.type.sizes[0], value.type.sizes[1]);
  std::swap(value.type.strides[0], value.type.strides[1]);
  const ValueId root = graph.Root(id);
  if (value.type == graph.value(root).type && value.view_offset == 0) return root;
  value.view_of = root;
  return graph.AddValue(std::move(value));
}

bool IsOp(const Node& node, std::string_view name) { return node.op.operator_name().name == name; }

bool IsOp(const Node& node, std::string_view name, std::string_view overload) {
  return IsOp(node, name) && node.op.operator_name().overload_name == overload;
}

}  // namespace penstock
