#include "graph/passes/run_again.h"

namespace penstock {

namespace {

// Binds all values that the piece may read. PruneBound removes the unread ones.
void BindAll(Graph& piece, const Graph& joint) {
  ValueSet known = BoundValues(piece);
  for (const Bound& bound : joint.bound) {
    if (!known.contains(bound.value)) piece.bound.push_back(bound);
  }
}

}  // namespace

ValueSet BoundValues(const Graph& graph) {
  ValueSet bound(graph, {});
  for (const Bound& each : graph.bound) bound.insert(each.value);
  return bound;
}

void RecomputeIn(const RecomputeProblem& problem, const RecomputePlan& plan, const Graph& joint,
                 Graph& piece) {
  piece.nodes = WithProducers(problem, plan, piece.nodes);
  BindAll(piece, joint);
  piece.inputs = FreeValues(piece);
  PruneBound(piece);
}

void SaveForReaders(StageGraphs& graphs, const std::vector<const Graph*>& readers) {
  const ValueSet produced = ProducedValues(graphs.forward);
  ValueSet seen(graphs.forward, {});
  graphs.saved.clear();
  for (const Graph* reader : readers) {
    for (const ValueId input : reader->inputs) {
      if (!produced.contains(input) || seen.contains(input)) continue;
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

}  // namespace penstock
