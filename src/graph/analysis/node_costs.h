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

#include "graph/ir/ir.h"
#include "graph/run/interpret.h"

namespace penstock {

class NodeCosts {
 public:
  // Returns the cost that was set for equal calls, else EstimateSeconds.
  double Seconds(const Graph& graph, const Node& node) const;
  void Set(const Graph& graph, const Node& node, double seconds);

  std::size_t size() const { return seconds_.size(); }

 private:
  std::map<std::string, double> seconds_;  // by call
};

// Estimates the cost from FLOPs and bytes, for one core and a network of 2023.
double EstimateSeconds(const Graph& graph, const Node& node);

// Runs the graph node by node, once to warm up and then `runs` times. Sets the cost of each call to
// the median of its times. A collective is timed from its start to its result, so all ranks of its
// group must call this together. Mutates bound gradients.
void MeasureNodes(const Graph& graph, const GraphBinding& binding,
                  std::span<const at::Tensor> inputs, int runs, NodeCosts& costs);

}  // namespace penstock
