#include "graph/run/collective_program.h"

#include <algorithm>

#include "base/result.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

std::size_t CollectiveOf(const Graph& graph) {
  const auto found = std::ranges::find_if(graph.nodes, IsCollective);
  PENSTOCK_CHECK(found != graph.nodes.end() && graph.inputs.empty(),
                 "graph {} is not one collective of bound values", graph.name);
  return Index(found - graph.nodes.begin());
}

Graph StartOf(const Graph& graph) {
  const auto collective = static_cast<std::ptrdiff_t>(CollectiveOf(graph));
  Graph start = graph;
  start.nodes.erase(start.nodes.begin() + collective + 1, start.nodes.end());
  Node& node = start.nodes.back();
  node.op = SplitOf(node)->start;
  node.outputs = {start.AddValue({TicketType(), kNoValue, 0})};
  start.outputs = node.outputs;
  PruneBound(start);
  return start;
}

Graph WaitOf(const Graph& graph) {
  const auto collective = static_cast<std::ptrdiff_t>(CollectiveOf(graph));
  Graph wait = graph;
  wait.nodes.erase(wait.nodes.begin(), wait.nodes.begin() + collective);
  Node& node = wait.nodes.front();
  node.op = SplitOf(node)->wait;
  const ValueId ticket = wait.AddValue({TicketType(), kNoValue, 0});
  node.arguments.insert(node.arguments.begin(), ticket);
  wait.inputs = {ticket};
  PruneBound(wait);
  return wait;
}

}  // namespace

CollectiveProgram::CollectiveProgram(const Graph& graph, const GraphBinding& binding, GroupEnd& end)
    : group_(static_cast<int>(GroupOf(graph.nodes[CollectiveOf(graph)]))),
      end_(end),
      start_(StartOf(graph), binding),
      wait_(WaitOf(graph), binding),
      kept_(1),
      outputs_(graph.outputs.size()) {}

void CollectiveProgram::Start() {
  PENSTOCK_CHECK(!in_flight_, "the collective is in flight already");
  const GroupEndpoint endpoint(group_, end_);
  start_.Run({}, kept_);
  in_flight_ = true;
}

std::vector<at::Tensor>& CollectiveProgram::Wait() {
  PENSTOCK_CHECK(in_flight_, "the collective is not in flight");
  in_flight_ = false;
  const GroupEndpoint endpoint(group_, end_);
  wait_.Run(kept_, outputs_);
  return outputs_;
}

}  // namespace penstock
