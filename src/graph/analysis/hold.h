// Which values to hold for a later piece of a stage, and which to make again there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/ir/graph_tools.h"
#include "graph/ir/ir.h"

namespace penstock {

struct HoldProblem {
  const Graph* graph = nullptr;     // of the values' types
  std::vector<const Node*> makers;  // what ran before, in its order
  std::vector<ValueId> needed;      // roots that the later piece reads
  const ValueSet* there = nullptr;  // values that cost nothing to hold: bound ones
  // Values that may be held; null: all.
  const ValueSet* may_hold = nullptr;
};

struct HoldPlan {
  std::vector<bool> again;    // by maker: runs again in the later piece
  std::vector<ValueId> held;  // roots, in order of their numbers
  std::int64_t bytes = 0;     // of `held`
};

// What running a node again costs, in FLOPs: its own, and its memory traffic and call as FLOPs.
std::int64_t CostOfRunning(const Graph& graph, const Node& node);

// The plan of least cost of running again among those that hold at most `budget` bytes, as far as a
// price a byte finds it (the convex hull of all plans); the least bytes where none fits. Each price
// is one minimum cut: a value is held, made again, or not there; a node that runs again needs what
// it reads. (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, ask the question;
// the cut is after PyTorch's min-cut partitioner, with the cost of recomputation in it.) Nodes
// that draw random numbers, change their arguments or are collectives never run again.
HoldPlan PlanHold(const HoldProblem& problem, std::int64_t budget);

// `nodes` with the makers that run again, each before its first reader.
std::vector<Node> WithMakers(const HoldProblem& problem, const HoldPlan& plan,
                             std::span<const Node> nodes);

}  // namespace penstock
