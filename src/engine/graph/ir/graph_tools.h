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

// Returns a graph without nodes, inputs and outputs that has the same values and bound values.
Graph EmptyLike(const Graph& graph, std::string name);
// Returns the results of the graph's nodes.
ValueSet ProducedValues(const Graph& graph);
// Returns the roots that nodes or outputs read and that are neither results of nodes nor bound, in
// ascending order. These must be the graph's inputs.
std::vector<ValueId> FreeValues(const Graph& graph);
// Returns, by root, how often nodes and outputs read it or a view of it; 0 for views.
std::vector<int> CountReaders(const Graph& graph);
// Returns a constant argument of the node. Requires: the argument is a constant.
const c10::IValue& Constant(const Node& node, std::size_t argument);
// Returns a registered op. Errors: throws c10::Error if there is none.
c10::OperatorHandle FindOp(const char* name, const char* overload);
// Returns, by node, whether one of `values` depends on it. With `effects`, also whether a mutation
// of a bound gradient does.
std::vector<bool> NeededNodes(const Graph& graph, std::span<const ValueId> values, bool effects);
// Returns whether the op's meta kernel returns the types that the graph has for the node's outputs.
bool ProducesStatedTypes(const Graph& graph, const Node& node);
// Removes bound values that nothing reads.
void PruneBound(Graph& graph);

// Returns the transpose of a 2-D value: its root if that has this type, else a new view.
ValueId Transpose(Graph& graph, ValueId id);

// Returns whether the node calls the op with this name, in any overload or in the given one.
bool IsOp(const Node& node, std::string_view name);
bool IsOp(const Node& node, std::string_view name, std::string_view overload);

}  // namespace penstock
