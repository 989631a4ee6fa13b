// Merges the forward of one microbatch and the backward of another into one graph.
//
//   before:  forward(inputs) -> output, saved;  backward(saved) -> input gradient
//   after:   overlapped(inputs, saved) -> output, saved, input gradient
//
// Rule: splits every collective into a start, as soon as its input is available, and a wait, right
// before its first reader. The list scheduler orders the other nodes within the constraints of
// OrderOf, so that the other microbatch computes in between. (The DeepSeek-V3 Technical Report,
// 2024, section 3.2.1, orders them by hand.) Order: last, because it merges the final graphs.
#include "graph/passes/multiplex.h"

#include <algorithm>
#include <span>
#include <vector>

#include "graph/analysis/list_schedule.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// By node: predecessors that must have ended, and predecessors that must have started. All of them
// have smaller indices.
struct NodeOrder {
  std::vector<std::vector<int>> after;
  std::vector<std::vector<int>> after_start;
};

void SortUnique(std::vector<int>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

// Returns the constraints that every valid order of the graph satisfies. A value is produced before
// it is read. Mutations of one gradient keep their order, and so do random nodes, so that sums and
// random numbers stay the same. Collectives of a group start in their order. `part` is, by node,
// the index of the joined graph that the node comes from: random nodes and collectives of different
// parts are not ordered.
NodeOrder OrderOf(const Graph& graph, std::span<const int> part) {
  NodeOrder order{std::vector<std::vector<int>>(graph.nodes.size()),
                  std::vector<std::vector<int>>(graph.nodes.size())};
  // By root: the last node that produced or mutated it.
  std::vector<int> writers(graph.values.size(), -1);
  std::map<int, int> last_random;  // by part
  std::map<std::pair<int, std::int64_t>, int> last_in_group;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto number = static_cast<int>(i);
    const auto writer = [&](ValueId id) -> int& { return writers[graph.Root(id)]; };
    ForEachInput(node, [&](ValueId id) {
      if (writer(id) >= 0) order.after[i].push_back(writer(id));
    });
    // No node reads a mutated value (VerifyGraph), so only mutations depend on mutations.
    const int mutated = MutatedArgument(node.op.schema());
    if (mutated >= 0) {
      writer(std::get<ValueId>(node.arguments[mutated])) = number;
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) writer(output) = number;
    }
    if (IsRandom(node)) {
      const auto [last, is_first] = last_random.try_emplace(part[i], number);
      if (!is_first) order.after[i].push_back(std::exchange(last->second, number));
    }
    if (IsCollective(node)) {
      const auto [last, is_first] = last_in_group.try_emplace({part[i], GroupOf(node)}, number);
      if (!is_first) order.after_start[i].push_back(std::exchange(last->second, number));
    }
    SortUnique(order.after[i]);
  }
  return order;
}

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

// Returns whether the node can be split into a start, which requires contiguous memory, and a wait.
bool RunsOnLink(const Graph& graph, const Node& node) {
  return SplitOf(node).has_value() &&
         IsContiguous(graph.value(std::get<ValueId>(node.arguments.front())).type);
}

std::vector<Job> JobsOf(const Graph& graph, const NodeOrder& order, const NodeCosts& costs) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    jobs.push_back({RunsOnLink(graph, node), costs.Seconds(graph, node), order.after[i],
                    order.after_start[i]});
  }
  return jobs;
}

// Returns the graph's nodes in the order of the steps, with collectives split.
std::vector<Node> NodesOf(Graph& graph, const std::vector<JobStep>& steps) {
  std::vector<ValueId> ticket(graph.nodes.size(), kNoValue);
  std::vector<Node> nodes;
  for (const JobStep& step : steps) {
    const std::size_t number = step.job;
    Node node = graph.nodes[number];
    if (step.kind == JobStepKind::kStart) {
      ticket[number] = graph.AddValue({TicketType(), kNoValue, 0});
      node.op = SplitOf(node)->start;
      node.outputs = {ticket[number]};
    } else if (step.kind == JobStepKind::kWait) {
      node.op = SplitOf(node)->wait;
      node.arguments.insert(node.arguments.begin(), ticket[number]);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

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
  Graph first = input;
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
  Graph whole = JoinGraphs(first, weight, same);
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
  MultiplexedGraph result;
  Graph& graph = result.graph;
  graph = JoinGraphs(first, second, {});
  graph.name = "overlapped";
  std::vector<int> part(graph.nodes.size(), 1);
  std::fill_n(part.begin(), first.nodes.size(), 0);
  const std::vector<Job> jobs = JobsOf(graph, OrderOf(graph, part), costs);
  for (const Job& job : jobs) result.seconds_in_turn += job.seconds;
  const JobOrder order = ListSchedule(jobs);
  result.seconds = order.seconds;
  graph.nodes = NodesOf(graph, order.steps);
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
