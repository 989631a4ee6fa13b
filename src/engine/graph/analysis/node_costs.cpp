#include "graph/analysis/node_costs.h"

#include <algorithm>

#include "graph/analysis/recompute_plan.h"
#include "graph/ir/graph_tools.h"
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

// A collective of gloo on one machine, as measured with 2 processes: c10d has no faster one on
// CPUs.
constexpr LinkSpeed kGloo = {.latency = 300e-6, .bytes_per_second = 400e6};

// Returns how long a collective of `bytes` is in flight. In an all-gather or a reduce-scatter, a
// rank sends all blocks but one. An all-reduce is one after the other (ExchangesOf), in each of
// which one of two ranks sends half of the tensor.
double TimeOnLink(const Node& node, double bytes, const LinkSpeed& of_groups) {
  const std::string& name = node.op.operator_name().name;
  const LinkSpeed& link = name.starts_with("penstock::c10d_") ? kGloo : of_groups;
  if (name.ends_with("all_reduce")) return 2 * link.latency + bytes / link.bytes_per_second;
  if (name.ends_with("all_gather") || name.ends_with("reduce_scatter")) {
    const auto ranks = static_cast<double>(Constant(node, node.arguments.size() - 2).toInt());
    bytes *= (ranks - 1) / ranks;
  }
  return link.latency + bytes / link.bytes_per_second;
}

double EstimateSeconds(const Graph& graph, const Node& node, const LinkSpeed& link) {
  if (IsCollective(node)) {
    return TimeOnLink(node, static_cast<double>(CollectiveBytes(graph, node)), link);
  }
  return static_cast<double>(CostOfRunning(graph, node)) / kFlopsPerSecond;
}

}  // namespace

// An all-gather receives more than it sends.
std::int64_t CollectiveBytes(const Graph& graph, const Node& node) {
  std::int64_t bytes = BytesOf(graph.value(std::get<ValueId>(node.arguments.front())).type);
  for (const ValueId result : node.outputs) {
    if (result != kNoValue) bytes = std::max(bytes, BytesOf(graph.value(result).type));
  }
  return bytes;
}

double NodeCosts::Seconds(const Graph& graph, const Node& node) const {
  const auto found = seconds_.find(CallOf(graph, node));
  return found == seconds_.end() ? EstimateSeconds(graph, node, link_) : found->second;
}

void NodeCosts::Set(const Graph& graph, const Node& node, double seconds) {
  seconds_.insert_or_assign(CallOf(graph, node), seconds);
}

}  // namespace penstock
