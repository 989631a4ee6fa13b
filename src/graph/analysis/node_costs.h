// Costs of nodes in seconds: measured if available, else estimated.
//
// A cost belongs to a call: an op on arguments of these types with these constants, in any graph.
// Measurements of a stage's forward and backward therefore apply to whatever the passes turn them
// into. Ranks of a group that exchange tensors must use the same costs, because they must arrive at
// the same order.
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
  // Returns the seconds that were set for calls like this node's, else an estimate.
  double Seconds(const Graph& graph, const Node& node) const;
  void Set(const Graph& graph, const Node& node, double seconds);

  std::size_t size() const { return seconds_.size(); }

 private:
  std::map<std::string, double> seconds_;  // by call
};

// Estimates from FLOPs and bytes, for one core and a network of 2023.
double EstimateSeconds(const Graph& graph, const Node& node);

// Runs the graph node by node, once to warm up and then `runs` times, and sets each node's cost to
// the median over the runs and over equal calls. Collectives are timed alone, from start to result,
// so all ranks of their group must measure together. Mutates bound gradients.
void MeasureNodes(const Graph& graph, const GraphBinding& binding,
                  std::span<const at::Tensor> inputs, int runs, NodeCosts& costs);

}  // namespace penstock
