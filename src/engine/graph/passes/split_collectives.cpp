// Starts collectives early and waits for them late.
//
//   before:  %2 = all_gather(%1);  %4 = mm(%3, ..);  %5 = mm(%2, ..)
//   after:   %9 = all_gather_start(%1);  %4 = mm(%3, ..);  %2 = all_gather_wait(%9, %1);  %5 = ...
//
// Rule: each of the graphs that actions run is ordered by itself (HideCollectives). Order: after
// multiplex, which joins graphs with whole collectives.
#include "graph/passes/split_collectives.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "graph/analysis/list_schedule.h"
#include "graph/ir/graph_tools.h"
#include "graph/ir/ops_without_flops.h"
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

// The graph, and by node whether it is of the second of two joined graphs.
struct MixedGraph {
  Graph& graph;
  std::vector<bool> is_second;
};

// Returns the constraints that every valid order of the graph satisfies. A value is produced before
// it is read. Mutations of one gradient keep their order, and so do random nodes, so that sums and
// random numbers stay the same. Collectives start in their order: with `all_starts` all of them,
// else those of a group. Then nodes of different parts are not ordered.
NodeOrder OrderOf(const MixedGraph& mixed, bool all_starts) {
  const Graph& graph = mixed.graph;
  NodeOrder order{std::vector<std::vector<int>>(graph.nodes.size()),
                  std::vector<std::vector<int>>(graph.nodes.size())};
  // By root: the last node that produced or mutated it.
  std::vector<int> writers(graph.values.size(), -1);
  std::map<bool, int> last_random;  // by part
  std::map<std::pair<bool, std::int64_t>, int> last_in_group;
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
    const bool part = mixed.is_second[i];
    if (IsRandom(node)) {
      const auto [last, is_first] = last_random.try_emplace(part, number);
      if (!is_first) order.after[i].push_back(std::exchange(last->second, number));
    }
    if (IsCollective(node)) {
      const auto key =
          all_starts ? std::pair(false, std::int64_t{0}) : std::pair(part, GroupOf(node));
      const auto [last, is_first] = last_in_group.try_emplace(key, number);
      if (!is_first) order.after_start[i].push_back(std::exchange(last->second, number));
    }
    SortUnique(order.after[i]);
  }
  return order;
}

// Returns whether the node can be split into a start, which requires contiguous memory, and a wait.
bool RunsOnLink(const Graph& graph, const Node& node) {
  return SplitOf(node).has_value() &&
         IsContiguous(graph.value(std::get<ValueId>(node.arguments.front())).type);
}

std::vector<Job> JobsOf(const MixedGraph& mixed, Mixing mixing, const NodeOrder& order,
                        const std::function<bool(const Node&)>& is_on_link,
                        const std::function<double(const Node&)>& seconds) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < mixed.graph.nodes.size(); ++i) {
    const Node& node = mixed.graph.nodes[i];
    jobs.push_back({is_on_link(node), seconds(node), order.after[i], order.after_start[i],
                    mixing == Mixing::kSecondFills && mixed.is_second[i]});
  }
  return jobs;
}

// A collective takes as long as a matmul, whatever their sizes, and other nodes a tenth of it.
double UnitsOf(const Node& node) { return IsCollective(node) || !HasNoFlops(node) ? 1 : 0.1; }

// Puts the nodes into an order that does not depend on sizes.
void OrderBySizelessCosts(MixedGraph& mixed, Mixing mixing) {
  const std::vector<Job> jobs =
      JobsOf(mixed, mixing, OrderOf(mixed, /*all_starts=*/false), IsCollective, UnitsOf);
  std::vector<Node> nodes;
  std::vector<bool> is_second;
  for (const JobStep& step : ListSchedule(jobs).steps) {
    if (step.kind == JobStepKind::kWait) continue;
    nodes.push_back(std::move(mixed.graph.nodes[Index(step.job)]));
    is_second.push_back(mixed.is_second[Index(step.job)]);
  }
  mixed.graph.nodes = std::move(nodes);
  mixed.is_second = std::move(is_second);
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

}  // namespace

OrderSeconds HideCollectives(Graph& graph, std::size_t of_first, Mixing mixing,
                             const NodeCosts& costs) {
  OrderSeconds seconds;
  for (const Node& node : graph.nodes) seconds.in_turn += costs.Seconds(graph, node);
  seconds.ordered = seconds.in_turn;
  if (std::ranges::none_of(graph.nodes, IsCollective)) return seconds;
  MixedGraph mixed{graph, std::vector<bool>(graph.nodes.size(), true)};
  std::fill_n(mixed.is_second.begin(), of_first, false);
  OrderBySizelessCosts(mixed, mixing);
  const JobOrder order = ListSchedule(JobsOf(
      mixed, mixing, OrderOf(mixed, /*all_starts=*/true),
      [&](const Node& node) { return RunsOnLink(graph, node); },
      [&](const Node& node) { return costs.Seconds(graph, node); }));
  graph.nodes = NodesOf(graph, order.steps);
  seconds.ordered = order.seconds;
  return seconds;
}

Graph WithWholeCollectives(Graph graph) {
  std::map<ValueId, const Node*> waits;  // by ticket
  for (const Node& node : graph.nodes) {
    if (IsWait(node)) waits.emplace(std::get<ValueId>(node.arguments.front()), &node);
  }
  if (waits.empty()) return graph;
  std::vector<Node> nodes;
  for (const Node& node : graph.nodes) {
    if (IsWait(node)) continue;
    Node& whole = nodes.emplace_back(node);
    const std::optional<c10::OperatorHandle> op = WholeOf(node);
    if (!op) continue;
    whole.op = *op;
    whole.outputs = waits.at(node.outputs.front())->outputs;
  }
  graph.nodes = std::move(nodes);
  return graph;
}

Status SplitCollectives(StageGraphs& graphs, const CompileOptions& options) {
  const NodeCosts costs = options.costs == nullptr ? NodeCosts() : *options.costs;
  for (Graph* graph : {&graphs.forward, &graphs.backward_input, &graphs.backward_weight}) {
    HideCollectives(*graph, graph->nodes.size(), Mixing::kFree, costs);
  }
  return {};
}

}  // namespace penstock
