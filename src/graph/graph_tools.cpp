#include "graph/graph_tools.h"

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

ValueSet MadeValues(const Graph& graph) {
  ValueSet made(graph, {});
  for (const Node& node : graph.nodes) {
    for (const ValueId output : node.outputs) made.insert(output);
  }
  return made;
}

std::vector<ValueId> FreeValues(const Graph& graph) {
  ValueSet known = MadeValues(graph);
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

void PruneBound(Graph& graph) {
  ValueSet read(graph, {});
  ForEachRead(graph, [&](ValueId root) { read.insert(root); });
  std::erase_if(graph.bound, [&](const Bound& bound) { return !read.contains(bound.value); });
}

}  // namespace penstock
