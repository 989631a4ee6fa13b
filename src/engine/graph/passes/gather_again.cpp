// Gathers again what the backward reads, instead of saving it.
//
//   before:  forward:  %2 = all_gather(%1);  %3 = mm(%2, ..)     saved: %2
//            backward: .. = mm(.., %2)
//   after:   forward:  the same                                  saved: %1
//            backward: %2 = all_gather(%1);  .. = mm(.., %2)
//
// With sequence parallelism, each of the ranks of a tensor group then saves its own tokens of the
// inputs of layers only. (Korthikanti et al., 2022, section 4.2.2: an extra all-gather in the
// backward pass.)
// Rule: saves as few bytes as it can by running all-gathers again, with the copies before and after
// them, and padding. The same nodes run again, so results are bitwise equal. Order: see the pass
// table.
#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/passes/passes.h"
#include "graph/passes/run_again.h"

namespace penstock {
namespace {

bool ReadsAny(const Graph& graph, const Node& node, const ValueSet& roots) {
  bool reads = false;
  ForEachInput(node, [&](ValueId id) { reads = reads || roots.contains(graph.Root(id)); });
  return reads;
}

bool CopiesOrPads(const Node& node) { return IsCopy(node) || IsOp(node, "aten::constant_pad_nd"); }

// Returns the all-gathers of the graph, and the copies that they read or that read their results.
std::vector<const Node*> GathersOf(const Graph& graph) {
  std::vector<bool> chosen(graph.nodes.size());
  ValueSet gathered(graph, {}), sent(graph, {});
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    chosen[i] = IsAllGather(node) || (CopiesOrPads(node) && ReadsAny(graph, node, gathered));
    for (const ValueId output : node.outputs) {
      if (chosen[i]) gathered.insert(output);
    }
  }
  std::vector<const Node*> gathers;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool is_sent =
        std::ranges::any_of(node.outputs, [&](ValueId output) { return sent.contains(output); });
    if (!chosen[i] && !(IsCopy(node) && is_sent)) continue;
    gathers.insert(gathers.begin(), &node);
    ForEachInput(node, [&](ValueId id) { sent.insert(graph.Root(id)); });
  }
  return gathers;
}

}  // namespace

Status GatherAgain(StageGraphs& graphs, const CompileOptions& options) {
  if (!options.gather_again) return {};
  ValueSet alive = BoundValues(graphs.joint.graph);
  for (const ValueId gradient : graphs.joint.output_gradients) alive.insert(gradient);
  for (const ValueId value : graphs.joint.KeptInputs()) alive.insert(value);
  for (const ValueId value : graphs.joint.KeptOutputs()) alive.insert(value);
  RecomputeProblem problem;
  problem.graph = &graphs.backward;
  problem.producers = GathersOf(graphs.forward);
  problem.needed = graphs.backward.inputs;
  problem.alive = &alive;
  problem.gathers_again = true;
  RecomputeIn(problem, PlanRecompute(problem, /*budget=*/0), graphs.joint.graph, graphs.backward);
  SaveForReaders(graphs, {&graphs.backward});
  return {};
}

}  // namespace penstock
