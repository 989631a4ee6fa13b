#include "graph/compile.h"

#include <algorithm>

#include "graph/multiplex.h"
#include "graph/passes.h"

namespace penstock {
namespace {

// Numbers the values that a microbatch holds between actions.
class Places {
 public:
  int Of(ValueId value) {
    const auto found = std::find(values_.begin(), values_.end(), value);
    if (found != values_.end()) return static_cast<int>(found - values_.begin());
    values_.push_back(value);
    return static_cast<int>(values_.size()) - 1;
  }
  int count() const { return static_cast<int>(values_.size()); }

 private:
  std::vector<ValueId> values_;
};

bool Contains(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

Piece MakePiece(const Graph& graph, Places& places, const std::vector<ValueId>& read_later) {
  Piece piece{graph, {}, {}, {}};
  for (const ValueId input : graph.inputs) {
    piece.inputs.push_back(places.Of(input));
    piece.last.push_back(!Contains(read_later, input));
  }
  // Output 0 leaves the stage; the rest is held.
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    piece.outputs.push_back(i == 0 ? -1 : places.Of(graph.outputs[i]));
  }
  return piece;
}

std::vector<ValueId> Union(std::vector<ValueId> values, const std::vector<ValueId>& more) {
  for (const ValueId value : more) {
    if (!Contains(values, value)) values.push_back(value);
  }
  return values;
}

// The places of a microbatch that runs forward, then those of one that runs backward.
Piece MakeOverlapped(const StageGraphs& graphs, const Piece& forward, Places& places) {
  Piece piece = forward;
  piece.graph = graphs.overlapped;
  for (const ValueId input : WholeBackward(graphs).inputs) piece.inputs.push_back(places.Of(input));
  piece.last.resize(piece.inputs.size(), true);
  piece.outputs.push_back(-1);
  return piece;
}

std::int64_t BytesOf(const Graph& graph, const std::vector<ValueId>& values,
                     const std::vector<ValueId>& except) {
  std::int64_t bytes = 0;
  for (const ValueId value : values) {
    if (!Contains(except, value)) bytes += BytesOf(graph.value(value).type);
  }
  return bytes;
}

}  // namespace

Result<StageGraphs> BuildStageGraphs(JointGraph joint, const CompileOptions& options) {
  StageGraphs graphs;
  graphs.joint = std::move(joint);
  PENSTOCK_TRY_STATUS(RunPasses(graphs, options));
  return graphs;
}

StageProgram MakeStageProgram(const StageGraphs& graphs) {
  const Graph& input = graphs.backward_input;
  const Graph& weight = graphs.backward_weight;
  const ValueId output_gradient = graphs.joint.output_gradient;
  const std::vector<ValueId> read_by_backward = Union(input.inputs, weight.inputs);
  Places places;
  StageProgram program;
  for (const ValueId stage_input : graphs.forward.inputs) {
    program.stage_inputs.push_back(places.Of(stage_input));
  }
  program.forward = MakePiece(graphs.forward, places, read_by_backward);
  program.backward_input = MakePiece(input, places, weight.inputs);
  program.backward_weight = MakePiece(weight, places, {});
  if (!graphs.overlapped.name.empty()) {
    program.overlapped = MakeOverlapped(graphs, program.forward, places);
  }
  if (Contains(read_by_backward, output_gradient)) {
    program.output_gradient = places.Of(output_gradient);
  }
  program.held = places.count();
  program.saved_bytes =
      BytesOf(graphs.joint.graph, read_by_backward, Union(graphs.live, {output_gradient}));
  program.live_bytes = BytesOf(weight, weight.inputs, {});
  DescribePieces(program);
  return program;
}

void DescribePieces(StageProgram& program) {
  program.random = false;
  for (const Piece* piece : {&program.forward, &program.backward_input, &program.backward_weight}) {
    program.random = program.random ||
                     std::any_of(piece->graph.nodes.begin(), piece->graph.nodes.end(), IsRandom);
  }
  const Graph& forward = program.forward.graph;
  program.has_input_gradient = program.backward_input.graph.outputs.front() != kNoValue;
  program.output = forward.value(forward.outputs.front()).type;
  if (!forward.inputs.empty()) program.input = forward.value(forward.inputs.front()).type;
}

Result<StageProgram> CompileStage(const StageSpec& spec, const CompileOptions& options) {
  if (!options.stop_after.empty()) {
    return InvalidArgument("a stage program needs every pass: none to stop after");
  }
  PENSTOCK_TRY(JointGraph joint, CaptureStage(spec));
  PENSTOCK_TRY(const StageGraphs graphs, BuildStageGraphs(std::move(joint), options));
  return MakeStageProgram(graphs);
}

}  // namespace penstock
