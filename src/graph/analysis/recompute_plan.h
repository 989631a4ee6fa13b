// Min-cut recomputation: which values a stage saves for a later piece, and which that piece
// recomputes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/ir/graph_tools.h"
#include "graph/ir/ir.h"

namespace penstock {

struct RecomputeProblem {
  const Graph* graph = nullptr;        // gives the types of the values
  std::vector<const Node*> producers;  // the nodes that ran before, in execution order
  std::vector<ValueId> needed;         // roots that the later piece reads
  // Values that are alive anyway (bound values), so that saving them is free.
  const ValueSet* alive = nullptr;
  // The values that may be saved; null allows all of them.
  const ValueSet* may_save = nullptr;
};

struct RecomputePlan {
  std::vector<bool> recomputed;  // by producer: whether the later piece runs it again
  std::vector<ValueId> saved;    // roots, in ascending order
  std::int64_t bytes = 0;        // total size of `saved`
};

// Returns the cost of running a node, in FLOPs. Memory traffic and call overhead are converted to
// FLOPs.
std::int64_t CostOfRunning(const Graph& graph, const Node& node);

// Returns the cheapest plan to recompute that saves at most `budget` bytes, among the plans that
// some price per byte selects (the convex hull of all plans). Returns the plan that saves the
// fewest bytes if none fits.
//
// Each price is one minimum cut: a value is either saved, recomputed or not needed, and a node that
// runs again needs its inputs. The question is that of Chen et al., Training Deep Nets with
// Sublinear Memory Cost, 2016; the cut follows PyTorch's min-cut partitioner and adds the cost of
// recomputation. Nodes that draw random numbers, mutate an argument or are collectives never run
// recomputed.
RecomputePlan PlanRecompute(const RecomputeProblem& problem, std::int64_t budget);

// Returns `nodes` together with the producers that run again, each placed before its first reader.
std::vector<Node> WithProducers(const RecomputeProblem& problem, const RecomputePlan& plan,
                                std::span<const Node> nodes);

}  // namespace penstock
