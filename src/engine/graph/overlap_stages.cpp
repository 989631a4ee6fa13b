#include "graph/overlap_stages.h"

#include <algorithm>
#include <map>

#include "base/index.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/passes/multiplex.h"
#include "graph/passes/split_collectives.h"

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

// Returns the slots of the values that the backward of a microbatch reads.
std::map<ValueId, int> SlotsOfBackward(const StageProgram& backward) {
  std::map<ValueId, int> slots;
  for (const StagePiece* piece : {&backward.backward_input, &backward.backward_weight}) {
    for (std::size_t i = 0; i < piece->inputs.size(); ++i) {
      slots.emplace(piece->graph.inputs[i], piece->inputs[i]);
    }
  }
  return slots;
}

// Divides the nodes of a graph before node `end`. The first graph has its outputs, and the values
// that the second one reads.
std::pair<Graph, Graph> DivideAt(const Graph& whole, std::ptrdiff_t end) {
  Graph first = EmptyLike(whole, "backward_input");
  Graph second = EmptyLike(whole, "backward_weight");
  first.nodes.assign(whole.nodes.begin(), whole.nodes.begin() + end);
  second.nodes.assign(whole.nodes.begin() + end, whole.nodes.end());
  first.outputs = whole.outputs;
  second.inputs = FreeValues(second);
  const ValueSet produced = ProducedValues(first);
  for (const ValueId value : second.inputs) {
    if (produced.contains(value)) first.outputs.push_back(value);
  }
  first.inputs = FreeValues(first);
  PruneBound(first);
  PruneBound(second);
  return {std::move(first), std::move(second)};
}

}  // namespace

StagePiece MakeOverlappedPiece(Graph overlapped, const StageProgram& forward,
                               const StageProgram& backward) {
  const std::map<ValueId, int> slots = SlotsOfBackward(backward);
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

std::optional<InterleavedBackward> InterleaveBackward(const StageProgram& program,
                                                      const NodeCosts& costs) {
  const Graph input = WithWholeCollectives(program.backward_input.graph);
  if (std::ranges::none_of(input.nodes, IsCollective) || program.backward_random ||
      program.backward_weight.graph.nodes.empty()) {
    return std::nullopt;
  }
  Graph whole = WholeBackward(program);
  HideCollectives(whole, input.nodes.size(), Mixing::kSecondFills, costs);
  const std::vector<bool> needed = NeededNodes(whole, whole.outputs, /*effects=*/false);
  const auto last = std::find(needed.rbegin(), needed.rend(), true);
  auto [first, second] = DivideAt(whole, needed.rend() - last);

  InterleavedBackward pieces;
  pieces.slots = program.slots;
  std::map<ValueId, int> slots = SlotsOfBackward(program);
  pieces.input.outputs.resize(whole.outputs.size(), -1);
  for (std::size_t i = whole.outputs.size(); i < first.outputs.size(); ++i) {
    pieces.input.outputs.push_back(slots[first.outputs[i]] = pieces.slots++);
  }
  const ValueSet read_later(whole, second.inputs);
  for (const ValueId value : first.inputs) {
    pieces.input.inputs.push_back(slots.at(value));
    pieces.input.last.push_back(!read_later.contains(value));
  }
  for (const ValueId value : second.inputs) pieces.weight.inputs.push_back(slots.at(value));
  pieces.weight.last.resize(second.inputs.size(), true);
  pieces.input.graph = std::move(first);
  pieces.weight.graph = std::move(second);
  return pieces;
}

}  // namespace penstock
