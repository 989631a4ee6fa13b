#include "graph/analysis/node_costs.h"

#include <algorithm>

#include "graph/analysis/recompute_plan.h"
#include "graph/ir/print.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

// fp32 matmul on one AVX-512 core of a 2023 server, in FLOP/s.
constexpr double kFlopsPerSecond = 50e9;

// Returns the text that identifies calls of equal cost: the op, argument types and constants.
std::string CallOf(const Graph& graph, const Node& node) {
  std::string call = c10::toString(node.op.operator_name());
  const auto type = [&](ValueId id) {
    return id == kNoValue ? "none" : PrintType(graph.value(id).type);
  };
  for (const Argument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      call += ' ' + type(*id);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      for (const ValueId each : *list) call += ' ' + type(each);
    } else {
      call += ' ' + PrintConstant(std::get<c10::IValue>(argument));
    }
  }
  return call;
}

double EstimateSeconds(const Graph& graph, const Node& node, const LinkSpeed& link) {
  if (IsCollective(node)) {
    // An all-gather receives more than it sends.
    std::int64_t bytes = BytesOf(graph.value(std::get<ValueId>(node.arguments.front())).type);
    for (const ValueId result : node.outputs) {
      if (result != kNoValue) bytes = std::max(bytes, BytesOf(graph.value(result).type));
    }
    return link.latency + static_cast<double>(bytes) / link.bytes_per_second;
  }
  return static_cast<double>(CostOfRunning(graph, node)) / kFlopsPerSecond;
}

}  // namespace

double NodeCosts::Seconds(const Graph& graph, const Node& node) const {
  const auto found = seconds_.find(CallOf(graph, node));
  return found == seconds_.end() ? EstimateSeconds(graph, node, link_) : found->second;
}

void NodeCosts::Set(const Graph& graph, const Node& node, double seconds) {
  seconds_.insert_or_assign(CallOf(graph, node), seconds);
}

}  // namespace penstock
