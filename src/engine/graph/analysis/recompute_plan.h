// Min-cut recomputation: which values a stage saves for a later piece, and which values that piece
// recomputes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/ir/graph_tools.h"
#include "graph/ir/ir.h"

namespace penstock {

struct RecomputeProblem {
  const Graph* graph = nullptr;        // for the types of the values
  std::vector<const Node*> producers;  // the nodes of earlier pieces, in execution order
  std::vector<ValueId> needed;         // roots that the later piece reads
  // Values that are alive anyway, such as bound values. Saving them is free.
  const ValueSet* alive = nullptr;
  // The values that may be saved; null allows all of them.
  const ValueSet* may_save = nullptr;
  bool gathers_again = false;  // whether all-gathers may be recomputed
};

struct RecomputePlan {
  std::vector<bool> recomputed;  // by producer: whether the later piece runs it again
  std::vector<ValueId> saved;    // roots, in ascending order
  std::int64_t bytes = 0;        // total size of `saved`
};

// Returns the cost of running a node, with memory traffic and call overhead converted to FLOPs.
std::int64_t CostOfRunning(const Graph& graph, const Node& node);

// Returns the plan with the cheapest recomputation that saves at most `budget` bytes, among the
// plans that are optimal at some price per byte (the convex hull of all plans). If none fits,
// returns the plan that saves the fewest bytes.
//
// Each price is one minimum cut: a value is saved, recomputed or not needed, and a node that runs
// again needs its inputs. The problem was posed by Chen et al., Training Deep Nets with Sublinear
// Memory Cost, 2016. The cut follows PyTorch's min-cut partitioner and adds the cost of
// recomputation. Random nodes, nodes that mutate an argument and collectives are never recomputed,
// except all-gathers with `gathers_again`.
RecomputePlan PlanRecompute(const RecomputeProblem& problem, std::int64_t budget);

// Returns `nodes` and the producers that run again, each inserted before its first reader.
std::vector<Node> WithProducers(const RecomputeProblem& problem, const RecomputePlan& plan,
                                std::span<const Node> nodes);

}  // namespace penstock
