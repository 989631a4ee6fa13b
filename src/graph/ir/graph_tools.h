// What several passes ask of a graph.
#pragma once

#include <span>
#include <string>
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

// The same values and bound values, and nothing else.
Graph EmptyLike(const Graph& graph, std::string name);
// Results of the graph's nodes.
ValueSet MadeValues(const Graph& graph);
// Roots that nodes and outputs read and that are neither made here nor bound, in order of their
// numbers: what the graph's inputs must be.
std::vector<ValueId> FreeValues(const Graph& graph);
// By value: how often nodes and outputs read the root or a view of it; 0 for views.
std::vector<int> CountReaders(const Graph& graph);
// The argument, which must be a constant.
const c10::IValue& Constant(const Node& node, std::size_t argument);
// A registered op; throws c10::Error where there is none.
c10::OperatorHandle FindOp(const char* name, const char* overload);
// By node: whether `values`, or (with `effects`) a change of a bound gradient, needs it.
std::vector<bool> NeededNodes(const Graph& graph, std::span<const ValueId> values, bool effects);
// Whether the node's op makes outputs of the types that the graph says, by the op's own meta
// kernel.
bool MakesItsTypes(const Graph& graph, const Node& node);
// Drops bound values that nothing reads.
void PruneBound(Graph& graph);

}  // namespace penstock
