// Recomputes values in a later piece that would take too many bytes to save for it.
//
//   Recompute            before:  forward -> output, saved;  backward(saved)
//                        after:   forward -> output, fewer;  backward(fewer) recomputes the others
//                        always recomputes copies of values that the stage's caller keeps alive
//   RecomputeForWeight   the same for what backward_weight reads of backward_input and forward
//
// Rule: the cheapest plan within the bytes that the options allow (recompute_plan.h). The same
// nodes run again, so results are bitwise equal; each runs right before its first reader, so that
// its value is alive for as short as possible. Order: see the pass table.
#include "base/units.h"
#include "graph/analysis/recompute_plan.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

ValueSet BoundValues(const Graph& graph) {
  ValueSet bound(graph, {});
  for (const Bound& each : graph.bound) bound.insert(each.value);
  return bound;
}

// Binds everything that the piece may read; PruneBound drops the rest.
void BindAll(Graph& piece, const Graph& joint) {
  ValueSet known = BoundValues(piece);
  for (const Bound& bound : joint.bound) {
    if (!known.contains(bound.value)) piece.bound.push_back(bound);
  }
}

// Makes the piece recompute what the plan says and take the rest as inputs.
void RecomputeIn(const RecomputeProblem& problem, const RecomputePlan& plan, const Graph& joint,
                 Graph& piece) {
  piece.nodes = WithProducers(problem, plan, piece.nodes);
  BindAll(piece, joint);
  piece.inputs = FreeValues(piece);
  PruneBound(piece);
}

Status CheckBudget(const RecomputePlan& plan, std::int64_t budget, const char* what) {
  if (budget == 0 || plan.bytes <= budget) return {};
  return InvalidArgument("{}: at least {} must be saved, but only {} are allowed", what,
                         FormatBytes(plan.bytes), FormatBytes(budget));
}

// Makes forward output what the pieces of backward read of it.
void SaveForReaders(StageGraphs& graphs, const std::vector<const Graph*>& readers) {
  const ValueSet made = MadeValues(graphs.forward);
  ValueSet seen(graphs.forward, {});
  graphs.saved.clear();
  for (const Graph* reader : readers) {
    for (const ValueId input : reader->inputs) {
      if (!made.contains(input) || seen.contains(input)) continue;
      seen.insert(input);
      graphs.saved.push_back(input);
    }
  }
  graphs.forward.outputs.resize(graphs.joint.outputs().size());
  graphs.forward.outputs.insert(graphs.forward.outputs.end(), graphs.saved.begin(),
                                graphs.saved.end());
}

bool IsCopy(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name == "aten::cat" || name == "aten::clone";
}

// Recomputes copies of values that are alive anyway.
RecomputePlan RecomputeCopies(const RecomputeProblem& problem) {
  ValueSet alive = *problem.alive;
  RecomputePlan plan;
  for (const Node* node : problem.producers) {
    bool recompute = IsCopy(*node);
    ForEachInput(*node, [&](ValueId id) {
      recompute = recompute && alive.contains(problem.graph->Root(id));
    });
    plan.recomputed.push_back(recompute);
    for (const ValueId output : node->outputs) {
      if (recompute) alive.insert(output);
    }
  }
  return plan;
}

void AddProducers(RecomputeProblem& problem, const Graph& graph) {
  for (const Node& node : graph.nodes) problem.producers.push_back(&node);
}

}  // namespace

Status Recompute(StageGraphs& graphs, const CompileOptions& options) {
  if (options.hold == kHoldAll && graphs.joint.kept_outputs.empty()) return {};
  Graph& backward = graphs.backward;
  ValueSet alive = BoundValues(graphs.joint.graph);
  // They arrive when backward starts.
  for (const ValueId gradient : graphs.joint.output_gradients) alive.insert(gradient);
  for (const ValueId value : graphs.joint.KeptInputs()) alive.insert(value);
  for (const ValueId value : graphs.joint.KeptOutputs()) alive.insert(value);
  RecomputeProblem problem;
  problem.graph = &backward;
  AddProducers(problem, graphs.forward);
  problem.needed = backward.inputs;
  problem.alive = &alive;
  const RecomputePlan plan =
      options.hold == kHoldAll ? RecomputeCopies(problem) : PlanRecompute(problem, options.hold);
  PENSTOCK_TRY_STATUS(CheckBudget(plan, options.hold, "recompute"));
  RecomputeIn(problem, plan, graphs.joint.graph, backward);
  SaveForReaders(graphs, {&backward});
  return {};
}

Status RecomputeForWeight(StageGraphs& graphs, const CompileOptions& options) {
  if (options.hold_for_weight == kHoldAll) return {};
  Graph& input = graphs.backward_input;
  Graph& weight = graphs.backward_weight;
  ValueSet may_save = MadeValues(input);
  for (const Graph* piece : {&input, &weight}) {
    for (const ValueId id : piece->inputs) may_save.insert(id);
  }
  // A value that F does not save yet is not saved for W alone: it would be alive from F on.
  const ValueSet alive = BoundValues(graphs.joint.graph);
  RecomputeProblem problem;
  problem.graph = &weight;
  AddProducers(problem, graphs.forward);
  AddProducers(problem, input);
  problem.needed = weight.inputs;
  problem.alive = &alive;
  problem.may_save = &may_save;
  const RecomputePlan plan = PlanRecompute(problem, options.hold_for_weight);
  PENSTOCK_TRY_STATUS(CheckBudget(plan, options.hold_for_weight, "recompute for weight"));
  RecomputeIn(problem, plan, graphs.joint.graph, weight);

  const ValueSet made = MadeValues(input);
  graphs.live.clear();
  for (const ValueId value : weight.inputs) {
    if (made.contains(value)) graphs.live.push_back(value);
  }
  input.outputs.resize(graphs.joint.input_gradients().size());
  input.outputs.insert(input.outputs.end(), graphs.live.begin(), graphs.live.end());
  SaveForReaders(graphs, {&input, &weight});
  return {};
}

}  // namespace penstock
