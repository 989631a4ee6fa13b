// Recomputes values in a later piece instead of saving them.
//
//   RecomputeValues      before:  forward -> output, saved;  backward(saved)
//                        after:   forward -> output, fewer;  backward(fewer) recomputes the others
//                        Always recomputes copies of values that the caller of the stage keeps
//                        alive, and masks of documents.
//   RecomputeForWeight   the same for what backward_weight reads of backward_input and forward
//
// With CompileOptions::recompute_modules, only results of the named modules are recomputed
// (selective recomputation; Korthikanti et al., Reducing Activation Recomputation in Large
// Transformer Models, 2022, section 5).
// Rule: uses the cheapest plan within the save budget (recompute_plan.h). The same nodes run again,
// so results are bitwise equal. Each runs right before its first reader, which keeps its lifetime
// short. Order: see the pass table.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "graph/analysis/recompute_plan.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/module_scope.h"
#include "graph/passes/passes.h"
#include "graph/passes/run_again.h"

namespace penstock {
namespace {

Status CheckBudget(const RecomputePlan& plan, std::int64_t budget, const char* what) {
  if (budget == 0 || plan.bytes <= budget) return {};
  return InvalidArgument("{}: at least {} must be saved, but the budget is {}; increase it", what,
                         FormatBytes(plan.bytes), FormatBytes(budget));
}

// A mask is the square of the sequence, but is computed from one number per token.
bool IsMask(const Node& node) { return IsOp(node, "penstock::document_mask"); }

// Returns a plan that recomputes masks, and copies of values that are alive anyway.
RecomputePlan RecomputeCopies(const RecomputeProblem& problem) {
  ValueSet alive = *problem.alive;
  RecomputePlan plan;
  for (const Node* node : problem.producers) {
    bool recompute = IsCopy(*node);
    ForEachInput(*node, [&](ValueId id) {
      recompute = recompute && alive.contains(problem.graph->Root(id));
    });
    plan.recomputed.push_back(recompute || IsMask(*node));
    for (const ValueId output : node->outputs) {
      if (recompute) alive.insert(output);
    }
  }
  return plan;
}

void AddProducers(RecomputeProblem& problem, const Graph& graph) {
  for (const Node& node : graph.nodes) problem.producers.push_back(&node);
}

bool Contains(const std::vector<ModuleKind>& modules, ModuleKind kind) {
  return std::find(modules.begin(), modules.end(), kind) != modules.end();
}

// Removes nodes of forward that belong to no requested module. Keeps copies of values that are
// alive anyway.
void KeepModules(RecomputeProblem& problem, const std::vector<ModuleKind>& modules) {
  if (modules.empty()) return;
  const std::vector<bool> copies = RecomputeCopies(problem).recomputed;
  std::vector<const Node*> kept;
  for (std::size_t i = 0; i < problem.producers.size(); ++i) {
    const Node* const node = problem.producers[i];
    if (copies[i] || node->phase == Phase::kBackward || Contains(modules, node->module)) {
      kept.push_back(node);
    }
  }
  problem.producers = std::move(kept);
}

// Fails if the model declares no op of a requested module.
Status CheckModules(const Graph& forward, const std::vector<ModuleKind>& modules) {
  for (const auto& [kind, name] : kModuleNames) {
    if (!Contains(modules, kind)) continue;
    if (std::ranges::find(forward.nodes, kind, &Node::module) != forward.nodes.end()) continue;
    return InvalidArgument(
        "recompute.modules: the model's code has no ModuleScope of '{}'; add one, or use "
        "recompute.modules=all with recompute.hold=least",
        name);
  }
  return {};
}

}  // namespace

Status RecomputeValues(StageGraphs& graphs, const CompileOptions& options) {
  PENSTOCK_TRY_STATUS(CheckModules(graphs.forward, options.recompute_modules));
  const bool keeps_all = options.save_budget == kSaveAll;
  const bool has_masks = std::ranges::any_of(graphs.forward.nodes, IsMask);
  if (keeps_all && graphs.joint.kept_outputs.empty() && !has_masks) return {};
  Graph& backward = graphs.backward;
  ValueSet alive = BoundValues(graphs.joint.graph);
  // Gradients of outputs arrive at the start of backward.
  for (const ValueId gradient : graphs.joint.output_gradients) alive.insert(gradient);
  for (const ValueId value : graphs.joint.KeptInputs()) alive.insert(value);
  for (const ValueId value : graphs.joint.KeptOutputs()) alive.insert(value);
  RecomputeProblem problem;
  problem.graph = &backward;
  AddProducers(problem, graphs.forward);
  problem.needed = backward.inputs;
  problem.alive = &alive;
  problem.gathers_again = options.gather_again && !options.ranks_differ;
  KeepModules(problem, options.recompute_modules);
  const RecomputePlan plan =
      keeps_all ? RecomputeCopies(problem) : PlanRecompute(problem, options.save_budget);
  PENSTOCK_TRY_STATUS(CheckBudget(plan, options.save_budget, "recompute.hold"));
  RecomputeIn(problem, plan, graphs.joint.graph, backward);
  SaveForReaders(graphs, {&backward});
  return {};
}

Status RecomputeForWeight(StageGraphs& graphs, const CompileOptions& options) {
  if (options.save_budget_for_weight == kSaveAll) return {};
  Graph& input = graphs.backward_input;
  Graph& weight = graphs.backward_weight;
  ValueSet may_save = ProducedValues(input);
  for (const Graph* piece : {&input, &weight}) {
    for (const ValueId id : piece->inputs) may_save.insert(id);
  }
  // Only values that F already saves may be saved for W: others would be alive from F on.
  const ValueSet alive = BoundValues(graphs.joint.graph);
  RecomputeProblem problem;
  problem.graph = &weight;
  AddProducers(problem, graphs.forward);
  AddProducers(problem, input);
  problem.needed = weight.inputs;
  problem.alive = &alive;
  problem.may_save = &may_save;
  KeepModules(problem, options.recompute_modules);
  const RecomputePlan plan = PlanRecompute(problem, options.save_budget_for_weight);
  PENSTOCK_TRY_STATUS(
      CheckBudget(plan, options.save_budget_for_weight, "recompute.hold_for_weight"));
  RecomputeIn(problem, plan, graphs.joint.graph, weight);

  const ValueSet produced = ProducedValues(input);
  graphs.live.clear();
  for (const ValueId value : weight.inputs) {
    if (produced.contains(value)) graphs.live.push_back(value);
  }
  input.outputs.resize(graphs.joint.input_gradients().size());
  input.outputs.insert(input.outputs.end(), graphs.live.begin(), graphs.live.end());
  SaveForReaders(graphs, {&input, &weight});
  return {};
}

}  // namespace penstock
