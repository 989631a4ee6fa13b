// Makes values again in a later piece that would cost too many bytes to hold until then.
//
//   Recompute            before:  forward -> output, saved;  backward(saved)
//                        after:   forward -> output, fewer;  backward(fewer) makes the others again
//                        what only copies values that the stage's caller holds anyway, always
//   RecomputeForWeight   the same for what backward_weight holds of backward_input and forward
//
// Rule: the cheapest plan within the bytes that the options allow (hold.h). A value is made again
// right before its first reader, so that it lives as short as can be, by the same nodes: the same
// bits. Order: see the pass table.
#include "base/units.h"
#include "graph/analysis/hold.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

ValueSet BoundValues(const Graph& graph) {
  ValueSet bound(graph, {});
  for (const Bound& each : graph.bound) bound.insert(each.value);
  return bound;
}

// All that the pieces may read; PruneBound drops the rest.
void BindAll(Graph& piece, const Graph& joint) {
  ValueSet known = BoundValues(piece);
  for (const Bound& bound : joint.bound) {
    if (!known.contains(bound.value)) piece.bound.push_back(bound);
  }
}

// The piece makes for itself what the plan runs again, and takes the rest as inputs.
void RunAgain(const HoldProblem& problem, const HoldPlan& plan, const Graph& joint, Graph& piece) {
  piece.nodes = WithMakers(problem, plan, piece.nodes);
  BindAll(piece, joint);
  piece.inputs = FreeValues(piece);
  PruneBound(piece);
}

Status CheckBudget(const HoldPlan& plan, std::int64_t budget, const char* what) {
  if (budget == 0 || plan.bytes <= budget) return {};
  return InvalidArgument("{}: at least {} must be held, {} are allowed", what,
                         FormatBytes(plan.bytes), FormatBytes(budget));
}

// Forward gives what the pieces of backward read of it.
void SaveWhatIsRead(StageGraphs& graphs, const std::vector<const Graph*>& readers) {
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

// Runs again what only copies values that are held anyway: those that are there.
HoldPlan CopyAgain(const HoldProblem& problem) {
  ValueSet held = *problem.there;
  HoldPlan plan;
  for (const Node* node : problem.makers) {
    bool again = IsCopy(*node);
    ForEachInput(*node,
                 [&](ValueId id) { again = again && held.contains(problem.graph->Root(id)); });
    plan.again.push_back(again);
    for (const ValueId output : node->outputs) {
      if (again) held.insert(output);
    }
  }
  return plan;
}

void AddMakers(HoldProblem& problem, const Graph& graph) {
  for (const Node& node : graph.nodes) problem.makers.push_back(&node);
}

}  // namespace

Status Recompute(StageGraphs& graphs, const CompileOptions& options) {
  if (options.hold == kHoldAll && graphs.joint.kept_outputs.empty()) return {};
  Graph& backward = graphs.backward;
  ValueSet there = BoundValues(graphs.joint.graph);
  // They come when backward begins.
  for (const ValueId gradient : graphs.joint.output_gradients) there.insert(gradient);
  for (const ValueId value : graphs.joint.KeptInputs()) there.insert(value);
  for (const ValueId value : graphs.joint.KeptOutputs()) there.insert(value);
  HoldProblem problem;
  problem.graph = &backward;
  AddMakers(problem, graphs.forward);
  problem.needed = backward.inputs;
  problem.there = &there;
  const HoldPlan plan =
      options.hold == kHoldAll ? CopyAgain(problem) : PlanHold(problem, options.hold);
  PENSTOCK_TRY_STATUS(CheckBudget(plan, options.hold, "recompute"));
  RunAgain(problem, plan, graphs.joint.graph, backward);
  SaveWhatIsRead(graphs, {&backward});
  return {};
}

Status RecomputeForWeight(StageGraphs& graphs, const CompileOptions& options) {
  if (options.hold_for_weight == kHoldAll) return {};
  Graph& input = graphs.backward_input;
  Graph& weight = graphs.backward_weight;
  ValueSet may_hold = MadeValues(input);
  for (const Graph* piece : {&input, &weight}) {
    for (const ValueId id : piece->inputs) may_hold.insert(id);
  }
  // What F does not save yet is not held for W alone: it would be held from F on.
  const ValueSet there = BoundValues(graphs.joint.graph);
  HoldProblem problem;
  problem.graph = &weight;
  AddMakers(problem, graphs.forward);
  AddMakers(problem, input);
  problem.needed = weight.inputs;
  problem.there = &there;
  problem.may_hold = &may_hold;
  const HoldPlan plan = PlanHold(problem, options.hold_for_weight);
  PENSTOCK_TRY_STATUS(CheckBudget(plan, options.hold_for_weight, "recompute for weight"));
  RunAgain(problem, plan, graphs.joint.graph, weight);

  const ValueSet made = MadeValues(input);
  graphs.live.clear();
  for (const ValueId value : weight.inputs) {
    if (made.contains(value)) graphs.live.push_back(value);
  }
  input.outputs.resize(graphs.joint.input_gradients().size());
  input.outputs.insert(input.outputs.end(), graphs.live.begin(), graphs.live.end());
  SaveWhatIsRead(graphs, {&input, &weight});
  return {};
}

}  // namespace penstock
