#include <algorithm>
#include <map>

#include "base/index.h"
#include "graph/compile.h"
#include "graph/passes/multiplex.h"

namespace penstock {
namespace {

// Returns the number of outputs that leave the stage. They come first.
std::size_t CountLeaving(const StagePiece& piece) {
  return Index(std::count(piece.outputs.begin(), piece.outputs.end(), -1));
}

Graph WholeBackward(const StageProgram& program) {
  return WholeBackward(program.backward_input.graph, program.backward_weight.graph,
                       CountLeaving(program.backward_input));
}

}  // namespace

StagePiece MakeOverlappedPiece(Graph overlapped, const StageProgram& forward,
                               const StageProgram& backward) {
  std::map<ValueId, int> slots;
  for (const StagePiece* piece : {&backward.backward_input, &backward.backward_weight}) {
    for (std::size_t i = 0; i < piece->inputs.size(); ++i) {
      slots.emplace(piece->graph.inputs[i], piece->inputs[i]);
    }
  }
  StagePiece piece{std::move(overlapped), forward.forward.inputs, forward.forward.last,
                   forward.forward.outputs};
  for (const ValueId input : WholeBackward(backward).inputs) {
    piece.inputs.push_back(slots.at(input));
  }
  piece.last.resize(piece.inputs.size(), true);
  piece.outputs.resize(piece.outputs.size() + CountLeaving(backward.backward_input), -1);
  return piece;
}

Result<StagePiece> OverlapStages(const StageProgram& forward, const StageProgram& backward,
                                 int parameters, const NodeCosts& costs) {
  const Graph second = WithParametersFrom(WholeBackward(backward), parameters);
  PENSTOCK_TRY(MultiplexedGraph multiplexed, MultiplexGraphs(forward.forward.graph, second, costs));
  return MakeOverlappedPiece(std::move(multiplexed.graph), forward, backward);
}

}  // namespace penstock
