// Common subexpression elimination.
//
// Rule: merges nodes of one phase with the same op and the same arguments. Does not merge nodes of
// different phases, because the forward would then save the value for the backward. Order: before
// the partition, which then saves fewer values.
#include <map>
#include <string>

#include "graph/ir/graph_tools.h"
#include "graph/ir/print.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// Returns a key. Nodes with equal keys compute equal results.
std::string KeyOf(const Node& node) {
  std::string key =
      fmt::format("{}{}", static_cast<int>(node.phase), c10::toString(node.op.operator_name()));
  for (const Argument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      key += fmt::format(" %{}", *id);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      key += " [";
      for (const ValueId each : *list) key += fmt::format(" %{}", each);
      key += ']';
    } else {
      const c10::IValue& constant = std::get<c10::IValue>(argument);
      key += ' ' + PrintConstant(constant);
      if (!HasExactText(constant)) key += fmt::format("@{}", fmt::ptr(&node));
    }
  }
  return key;
}

// Replaces reads of views of `old` by reads of the same views of `same`.
void MoveViews(Graph& graph, ValueId old, ValueId same, std::vector<ValueId>& now) {
  const auto equal = [&](const TensorValue& a, const TensorValue& b) {
    return a.view_offset == b.view_offset && a.type == b.type;
  };
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].view_of != old) continue;
    for (std::size_t j = 0; j < graph.values.size(); ++j) {
      if (graph.values[j].view_of != same || !equal(graph.values[i], graph.values[j])) continue;
      now[i] = static_cast<ValueId>(j);
    }
    graph.values[i].view_of = same;
  }
}

}  // namespace

Status MergeCommon(StageGraphs& graphs, const CompileOptions&) {
  Graph& graph = graphs.joint.graph;
  std::map<std::string, std::size_t> seen;  // by key: index among the kept nodes
  std::vector<ValueId> now(graph.values.size());
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = static_cast<ValueId>(i);
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    ForEachInput(node, [&](ValueId& id) { id = now[id]; });
    // Random nodes are never merged.
    const std::string key = IsRandom(node) ? fmt::format("{}", kept.size()) : KeyOf(node);
    const auto [entry, is_new] = seen.emplace(key, kept.size());
    if (is_new) {
      kept.push_back(std::move(node));
      continue;
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const ValueId same = kept[entry->second].outputs[i];
      now[node.outputs[i]] = same;
      MoveViews(graph, node.outputs[i], same, now);
    }
  }
  graph.nodes = std::move(kept);
  for (ValueId& output : graph.outputs) {
    if (output != kNoValue) output = now[output];
  }
  return {};
}

}  // namespace penstock
