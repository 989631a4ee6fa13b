// Costs of nodes in seconds: measured if available, else estimated.
//
// A cost belongs to a call: an op, the types of its arguments and its constants, in any graph.
// Measurements of a stage's forward and backward therefore also apply to the graphs that passes
// build from them. All ranks of a group must use the same costs, because they must compute the same
// order.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "collective/link_speed.h"
#include "graph/ir/ir.h"
#include "graph/run/interpret.h"

namespace penstock {

class NodeCosts {
 public:
  // The time of a collective that was not set follows from a link: 100 Gbit/s if none is given.
  NodeCosts() = default;
  explicit NodeCosts(LinkSpeed link) : link_(link) {}

  // Returns the cost that was set for equal calls, else an estimate from FLOPs and bytes, for one
  // core.
  double Seconds(const Graph& graph, const Node& node) const;
  void Set(const Graph& graph, const Node& node, double seconds);

  std::size_t size() const { return seconds_.size(); }

 private:
  LinkSpeed link_ = {.latency = 20e-6, .bytes_per_second = 12.5e9};
  std::map<std::string, double> seconds_;  // by call
};

// Runs the graph node by node, once to warm up and then `runs` times. Sets the cost of each call to
// the median of its times. A collective is timed from its start to its result, so all ranks of its
// group must call this together. Mutates bound gradients.
void MeasureNodes(const Graph& graph, const GraphBinding& binding,
                  std::span<const at::Tensor> inputs, int runs, NodeCosts& costs);

}  // namespace penstock
