// What nodes cost in seconds: measured where they were, else estimated.
//
// A cost belongs to a call: an op on arguments of these types with these constants, whichever graph
// it stands in. So what was measured on a stage's forward and backward serves whatever passes make
// of them later. Ranks of a group that exchange tensors must be given the same costs: then they
// come to the same order.
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
  // The seconds that were set for calls like this node's, else an estimate.
  double Seconds(const Graph& graph, const Node& node) const;
  void Set(const Graph& graph, const Node& node, double seconds);

  std::size_t size() const { return seconds_.size(); }

 private:
  std::map<std::string, double> seconds_;  // by call
};

// From FLOPs and bytes, for one core of today and a network of today.
double EstimateSeconds(const Graph& graph, const Node& node);

// Runs the graph `runs` times (and once before) node by node, and sets every node's cost to the
// median over the runs and over equal calls. Collectives are timed alone, from start to result: all
// ranks of their group must measure. Changes bound gradients.
void MeasureNodes(const Graph& graph, const GraphBinding& binding,
                  std::span<const at::Tensor> inputs, int runs, NodeCosts& costs);

}  // namespace penstock
