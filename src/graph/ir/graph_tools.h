// Helpers that several passes share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "graph/ir/ir.h"

namespace penstock {

// A set of the values of one graph.
class ValueSet {
 public:
  ValueSet(const Graph& graph, std::span<const ValueId> values) : in_(graph.values.size()) {
    for (const ValueId value : values) insert(value);
  }
  void insert(ValueId id) {
    if (id != kNoValue) in_.at(Index(id)) = true;
  }
  bool contains(ValueId id) const { return id != kNoValue && Index(id) < in_.size() && in_[id]; }

 private:
  std::vector<bool> in_;
};

// Returns a graph with the same values and bound values and nothing else.
Graph EmptyLike(const Graph& graph, std::string name);
// Returns the results of the graph's nodes.
ValueSet MadeValues(const Graph& graph);
// Returns the roots that nodes and outputs read and that are neither produced here nor bound, in
// ascending order. These must be the graph's inputs.
std::vector<ValueId> FreeValues(const Graph& graph);
// By value: how many nodes and outputs read the root or a view of it; 0 for views.
std::vector<int> CountReaders(const Graph& graph);
// Returns the argument. Requires: it is a constant.
const c10::IValue& Constant(const Node& node, std::size_t argument);
// Returns a registered op. Throws c10::Error if there is none.
c10::OperatorHandle FindOp(const char* name, const char* overload);
// By node: whether `values` depend on it or, with `effects`, whether a mutation of a bound gradient
// does.
std::vector<bool> NeededNodes(const Graph& graph, std::span<const ValueId> values, bool effects);
// Returns whether the op's meta kernel produces the types that the graph states for the node's
// outputs.
bool MakesItsTypes(const Graph& graph, const Node& node);
// Drops bound values that nothing reads.
void PruneBound(Graph& graph);

// Adds a view of the same root in which the two dimensions of `id` are swapped, and returns it.
// Returns the root itself if that view is the whole root.
ValueId Transpose(Graph& graph, ValueId id);

// Returns whether the node runs the op with this name, of any overload or of the given one.
bool IsOp(const Node& node, std::string_view name);
bool IsOp(const Node& node, std::string_view name, std::string_view overload);

}  // namespace penstock
