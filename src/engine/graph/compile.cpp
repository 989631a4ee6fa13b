#include "graph/compile.h"

#include <algorithm>

#include "graph/ops/collective.h"
#include "graph/overlap_stages.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

// Assigns slots to the values that a microbatch keeps between actions.
class Slots {
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

// The first `leaving` outputs leave the stage; the microbatch keeps the rest.
StagePiece MakePiece(const Graph& graph, Slots& slots, std::size_t leaving,
                     const std::vector<ValueId>& read_later) {
  StagePiece piece{graph, {}, {}, {}};
  for (const ValueId input : graph.inputs) {
    piece.inputs.push_back(slots.Of(input));
    piece.last.push_back(!Contains(read_later, input));
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    piece.outputs.push_back(i < leaving ? -1 : slots.Of(graph.outputs[i]));
  }
  return piece;
}

std::vector<ValueId> Union(std::vector<ValueId> values, const std::vector<ValueId>& more) {
  for (const ValueId value : more) {
    if (!Contains(values, value)) values.push_back(value);
  }
  return values;
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
  const JointGraph& joint = graphs.joint;
  const auto input_gradients = joint.input_gradients();
  const std::vector<ValueId> read_by_backward = Union(input.inputs, weight.inputs);
  Slots slots;
  StageProgram program;
  for (const ValueId stage_input : graphs.forward.inputs) {
    program.inputs.push_back({{}, false, slots.Of(stage_input)});
  }
  for (std::size_t i = 0; i < input_gradients.size(); ++i) {
    const std::size_t index = joint.differentiated_inputs[i];
    program.inputs[index].has_gradient = input_gradients[i] != kNoValue;
  }
  program.forward = MakePiece(graphs.forward, slots, joint.outputs().size(), read_by_backward);
  program.backward_input = MakePiece(input, slots, input_gradients.size(), weight.inputs);
  program.backward_weight = MakePiece(weight, slots, 0, {});
  if (!graphs.overlapped.name.empty()) {
    program.overlapped = MakeOverlappedPiece(graphs.overlapped, program, program);
  }
  program.unshard = graphs.unshard;
  program.reduce_grad = graphs.reduce_grad;
  program.sums = graphs.sums;
  program.updated_buffers = joint.updated_buffers;
  const auto sent = joint.output_gradients.size() - joint.updated_buffers.size();
  for (const ValueId gradient : std::span(joint.output_gradients).first(sent)) {
    const bool is_read = Contains(read_by_backward, gradient);
    program.outputs.push_back({{}, gradient != kNoValue, is_read ? slots.Of(gradient) : -1});
  }
  program.slots = slots.count();
  program.saved_bytes =
      BytesOf(joint.graph, Union(read_by_backward, joint.KeptOutputs()),
              Union(Union(graphs.live, joint.output_gradients), joint.KeptInputs()));
  program.live_bytes = BytesOf(weight, weight.inputs, {});
  DescribePieces(program);
  return program;
}

void DescribePieces(StageProgram& program) {
  const auto any = [](const StagePiece& piece, bool (*is)(const Node&)) {
    return std::any_of(piece.graph.nodes.begin(), piece.graph.nodes.end(), is);
  };
  program.exchanges = any(program.forward, IsCollective);
  program.backward_random = false;
  for (const StagePiece* piece : {&program.backward_input, &program.backward_weight}) {
    program.exchanges = program.exchanges || any(*piece, IsCollective);
    program.backward_random = program.backward_random || any(*piece, IsRandom);
  }
  program.random = program.backward_random || any(program.forward, IsRandom);
  const Graph& forward = program.forward.graph;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    program.inputs[i].type = forward.value(forward.inputs[i]).type;
  }
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    program.outputs[i].type = forward.value(forward.outputs[i]).type;
  }
}

// Returns a program without pieces.
StageProgram PortsOf(const JointGraph& joint, Fingerprint fingerprint) {
  StageProgram program;
  const std::size_t gradients = static_cast<std::size_t>(
      std::ranges::count_if(joint.output_gradients, [](ValueId id) { return id != kNoValue; }));
  const std::size_t inputs = joint.graph.inputs.size() - gradients;
  for (std::size_t i = 0; i < inputs; ++i) {
    program.inputs.push_back({joint.graph.value(joint.graph.inputs[i]).type, false, -1});
  }
  for (std::size_t i = 0; i < joint.differentiated_inputs.size(); ++i) {
    program.inputs[joint.differentiated_inputs[i]].has_gradient =
        joint.input_gradients()[i] != kNoValue;
  }
  const std::size_t sent = joint.output_gradients.size() - joint.updated_buffers.size();
  for (std::size_t i = 0; i < sent; ++i) {
    program.outputs.push_back(
        {joint.graph.value(joint.outputs()[i]).type, joint.output_gradients[i] != kNoValue, -1});
  }
  program.captured = std::move(fingerprint);
  return program;
}

Result<StageProgram> CompileStage(const StageSpec& spec, const CompileOptions& options) {
  if (!options.stop_after.empty()) {
    return InvalidArgument("a stage program needs every pass; leave stop_after empty");
  }
  PENSTOCK_TRY(JointGraph joint, CaptureStage(spec));
  Fingerprint fingerprint;
  if (options.fingerprints) fingerprint = FingerprintOf(joint.graph);
  if (options.captures_only) return PortsOf(joint, std::move(fingerprint));
  PENSTOCK_TRY(const StageGraphs graphs, BuildStageGraphs(std::move(joint), options));
  StageProgram program = MakeStageProgram(graphs);
  program.captured = std::move(fingerprint);
  return program;
}

}  // namespace penstock
