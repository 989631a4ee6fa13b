// The compiled pieces of a stage, bound to its parameters and gradients. Private to train/.
#pragma once

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/index.h"
#include "graph/compile.h"
#include "graph/overlap_stages.h"
#include "graph/run/interpret.h"
#include "graph/run/program_replays.h"

namespace penstock {

// A piece, its program, and the buffers for its inputs and outputs.
struct BoundPiece {
  StagePiece piece;
  GraphProgram program;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> leaving;  // the outputs that leave the stage
  std::optional<ProgramReplays> replays = {};

  BoundPiece(StagePiece from, const GraphBinding& binding)
      : piece(std::move(from)),
        program(piece.graph, binding),
        inputs(piece.inputs.size()),
        outputs(piece.outputs.size()),
        leaving(Index(std::count(piece.outputs.begin(), piece.outputs.end(), -1))) {}

  // Runs on the slots of a microbatch. Returns the outputs that leave the stage. The caller moves
  // them out before the next run.
  std::span<at::Tensor> Run(std::span<at::Tensor> slots) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& value = slots[piece.inputs[i]];
      inputs[i] = piece.last[i] ? std::move(value) : value;
    }
    if (replays) {
      replays->Run(program, inputs, outputs);
    } else {
      program.Run(inputs, outputs);
    }
    std::size_t left = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const int slot = piece.outputs[i];
      (slot < 0 ? leaving[left++] : slots[slot]) = std::move(outputs[i]);
    }
    return leaving;
  }

  // From here on, runs are graphs of the device, unless it cannot record them. `from_outside` has
  // the slots that no piece of the stage computes.
  void Replay(std::span<const int> from_outside, const GraphBinding& binding,
              const std::shared_ptr<RankRecorder>& rank) {
    const std::string reason = ProgramReplays::WhyNot(piece.graph);
    if (!reason.empty()) {
      rank->refusals.insert(piece.graph.name + ": " + reason);
      return;
    }
    ProgramPorts ports;
    for (const int slot : piece.inputs) {
      ports.from_outside.push_back(std::ranges::find(from_outside, slot) != from_outside.end());
    }
    for (const int slot : piece.outputs) ports.leaves.push_back(slot < 0);
    replays.emplace(piece.graph, binding, std::move(ports), rank);
  }
};

// The pieces for one shape of input.
struct BoundProgram {
  const std::int64_t id = NextId();  // unlike an address, no later program has it
  StageProgram program;
  BoundPiece forward;
  BoundPiece backward_input;
  BoundPiece backward_weight;
  // B runs these in place of the two, if they are set (InterleaveBackward).
  std::optional<BoundPiece> interleaved_input, interleaved_weight;
  std::vector<TensorType> input_types;     // by input of the stage
  std::vector<TensorType> gradient_types;  // by output that has a gradient
  std::int64_t input_bytes = 0;            // of the stage's inputs
  std::vector<int> gradient_slots;         // slots of the output gradients; -1: not read

  // `costs` order what B runs. `recorder` is null unless runs are recorded as graphs of the device.
  BoundProgram(StageProgram from, const GraphBinding& binding, const NodeCosts& costs,
               const std::shared_ptr<RankRecorder>& recorder)
      : program(std::move(from)),
        forward(program.forward, binding),
        backward_input(program.backward_input, binding),
        backward_weight(program.backward_weight, binding) {
    for (const StagePort& input : program.inputs) {
      input_types.push_back(input.type);
      input_bytes += BytesOf(input.type);
    }
    for (const StagePort& output : program.outputs) {
      if (!output.has_gradient) continue;
      gradient_types.push_back(output.type);
      gradient_slots.push_back(output.slot);
    }
    if (!recorder) {
      Interleave(binding, costs);
      return;
    }
    std::vector<int> from_outside = gradient_slots;
    for (const StagePort& input : program.inputs) from_outside.push_back(input.slot);
    for (BoundPiece* const piece : {&forward, &backward_input, &backward_weight}) {
      piece->Replay(from_outside, binding, recorder);
    }
  }

  void Interleave(const GraphBinding& binding, const NodeCosts& costs) {
    std::optional<InterleavedBackward> pieces = InterleaveBackward(program, costs);
    if (!pieces) return;
    program.slots = pieces->slots;
    interleaved_input.emplace(std::move(pieces->input), binding);
    interleaved_weight.emplace(std::move(pieces->weight), binding);
  }

  static std::int64_t NextId() {
    static std::atomic<std::int64_t> next = 0;
    return next++;
  }

  // Sets the buffers that F updates to the last results of forward, and returns the others.
  std::span<at::Tensor> SetBuffers(std::span<at::Tensor> results) {
    const at::NoGradGuard no_gradients;
    const std::size_t first = results.size() - program.updated_buffers.size();
    for (std::size_t i = first; i < results.size(); ++i) {
      program.updated_buffers[i - first].copy_(results[i]);
      results[i].reset();
    }
    return results.first(first);
  }

  // Returns the index of the first tensor whose type is not the stage input's.
  std::optional<std::size_t> FirstMismatch(std::span<const at::Tensor> tensors) const {
    if (tensors.size() != input_types.size()) return 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorType& type = input_types[i];
      const bool fits = tensors[i].sizes() == c10::IntArrayRef(type.sizes) &&
                        tensors[i].scalar_type() == type.dtype;
      if (!fits) return i;
    }
    return {};
  }
};

}  // namespace penstock
