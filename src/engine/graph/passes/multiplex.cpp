// Merges the forward of one microbatch and the backward of another into one graph.
//
//   before:  forward(inputs) -> output, saved;  backward(saved) -> input gradient
//   after:   overlapped(inputs, saved) -> output, saved, input gradient
//
// Rule: joins the graphs and splits every collective (split_collectives.h), so that the other
// microbatch computes in between. (The DeepSeek-V3 Technical Report, 2024, section 3.2.1, orders
// them by hand.) Order: near the end, because it merges the final graphs.
#include "graph/passes/multiplex.h"

#include <algorithm>
#include <span>
#include <vector>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"
#include "graph/passes/split_collectives.h"

namespace penstock {
namespace {

// Appends the values and nodes of a second graph to a first.
class Joiner {
 public:
  Joiner(const Graph& first, const Graph& second, const std::map<ValueId, ValueId>& same)
      : joined_(first), second_(second), now_(second.values.size(), kNoValue) {
    for (const auto& [from, to] : same) now(from) = to;
    for (const Bound& bound : second.bound) Bind(bound);
    for (std::size_t i = 0; i < now_.size(); ++i) {
      if (now_[i] == kNoValue) now_[i] = joined_.AddValue(second.values[i]);
    }
    for (std::size_t i = first.values.size(); i < joined_.values.size(); ++i) {
      ValueId& root = joined_.values[i].view_of;
      if (root != kNoValue) root = now(root);
    }
  }

  Graph Join() {
    ValueSet known = ProducedValues(joined_);
    for (const ValueId input : joined_.inputs) known.insert(input);
    for (const ValueId input : second_.inputs) {
      if (!known.contains(now(input))) joined_.inputs.push_back(now(input));
    }
    for (Node node : second_.nodes) {
      ForEachInput(node, [&](ValueId& id) { id = now(id); });
      for (ValueId& output : node.outputs) output = Now(output);
      joined_.nodes.push_back(std::move(node));
    }
    for (const ValueId output : second_.outputs) joined_.outputs.push_back(Now(output));
    return std::move(joined_);
  }

 private:
  ValueId& now(ValueId id) { return now_[id]; }
  ValueId Now(ValueId id) { return id == kNoValue ? kNoValue : now(id); }

  void Bind(Bound bound) {
    for (const Bound& known : joined_.bound) {
      if (HasTensor(bound.kind) || known.kind != bound.kind || known.index != bound.index) {
        continue;
      }
      now(bound.value) = known.value;
      return;
    }
    const ValueId added = joined_.AddValue(second_.value(bound.value));
    now(bound.value) = added;
    bound.value = added;
    joined_.bound.push_back(std::move(bound));
  }

  Graph joined_;
  const Graph& second_;
  std::vector<ValueId> now_;  // by value of the second graph: its number in the joined graph
};

bool DrawsRandomNumbers(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), IsRandom);
}

}  // namespace

Graph JoinGraphs(const Graph& first, const Graph& second, const std::map<ValueId, ValueId>& same) {
  return Joiner(first, second, same).Join();
}

Graph WithParametersFrom(Graph graph, int first) {
  for (Bound& bound : graph.bound) {
    if (!HasTensor(bound.kind)) bound.index += first;
  }
  return graph;
}

Graph WholeBackward(const Graph& input, const Graph& weight, std::size_t leaving) {
  // The two graphs are parts of one backward and share its value numbers. An input of W is an input
  // or result of I, or a value that I does not use; a parsed graph has no type for the latter.
  // Values that a later pass added to one graph have a number in that graph only.
  Graph first = WithWholeCollectives(input);
  const ValueSet read(input, input.inputs);
  const ValueSet produced = ProducedValues(input);
  std::map<ValueId, ValueId> same;
  for (const ValueId shared : weight.inputs) {
    const std::size_t index = shared;
    first.values.resize(std::max(first.values.size(), index + 1));
    if (!read.contains(shared) && !produced.contains(shared))
      first.values[index] = weight.values[index];
    PENSTOCK_CHECK(first.values[index].type == weight.values[index].type,
                   "%{} of {} is another value in {}", shared, weight.name, input.name);
    same.emplace(shared, shared);
  }
  Graph whole = JoinGraphs(first, WithWholeCollectives(weight), same);
  whole.name = "backward";
  whole.outputs.resize(leaving);
  return whole;
}

Graph WholeBackward(const StageGraphs& graphs) {
  return WholeBackward(graphs.backward_input, graphs.backward_weight,
                       graphs.backward_input.outputs.size() - graphs.live.size());
}

Result<MultiplexedGraph> MultiplexGraphs(const Graph& first, const Graph& second,
                                         const NodeCosts& costs) {
  if (DrawsRandomNumbers(first) && DrawsRandomNumbers(second)) {
    return InvalidArgument(
        "multiplex: {} and {} both draw random numbers, but a run has one generator; run them one "
        "after the other",
        first.name, second.name);
  }
  const Graph whole = WithWholeCollectives(first);
  MultiplexedGraph result{JoinGraphs(whole, WithWholeCollectives(second), {})};
  result.graph.name = "overlapped";
  const OrderSeconds seconds =
      HideCollectives(result.graph, whole.nodes.size(), Mixing::kFree, costs);
  result.seconds = seconds.ordered;
  result.seconds_in_turn = seconds.in_turn;
  return result;
}

Status Multiplex(StageGraphs& graphs, const CompileOptions& options) {
  if (!options.overlapped) return {};
  PENSTOCK_TRY(MultiplexedGraph multiplexed,
               MultiplexGraphs(graphs.forward, WholeBackward(graphs),
                               options.costs == nullptr ? NodeCosts() : *options.costs));
  graphs.overlapped = std::move(multiplexed.graph);
  return {};
}

}  // namespace penstock
