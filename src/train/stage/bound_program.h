// A stage's compiled pieces, bound to its parameters and gradients and ready to run. Private to
// train/.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/index.h"
#include "graph/compile.h"
#include "graph/run/interpret.h"

namespace penstock {

// A piece bound to its program, with room for what goes in and out.
struct BoundPiece {
  Piece piece;
  GraphProgram program;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> leaving;  // of the outputs: what leaves the stage

  BoundPiece(Piece from, const GraphBinding& binding)
      : piece(std::move(from)),
        program(piece.graph, binding),
        inputs(piece.inputs.size()),
        outputs(piece.outputs.size()),
        leaving(Index(std::count(piece.outputs.begin(), piece.outputs.end(), -1))) {}

  // Runs on what the row holds; returns what leaves the stage, to be taken before the next run.
  std::span<at::Tensor> Run(std::span<at::Tensor> held) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& value = held[piece.inputs[i]];
      inputs[i] = piece.last[i] ? std::move(value) : value;
    }
    program.Run(inputs, outputs);
    std::size_t left = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const int place = piece.outputs[i];
      (place < 0 ? leaving[left++] : held[place]) = std::move(outputs[i]);
    }
    return leaving;
  }
};

// One shape of input and its pieces.
struct BoundProgram {
  StageProgram program;
  BoundPiece forward;
  BoundPiece backward_input;
  BoundPiece backward_weight;
  std::vector<TensorType> input_types;     // by input of the stage
  std::vector<TensorType> gradient_types;  // by gradient that comes for an output
  std::int64_t input_bytes = 0;            // of the stage's inputs
  std::vector<int> gradient_places;        // where it is held; -1: nowhere

  BoundProgram(StageProgram from, const GraphBinding& binding)
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
      gradient_places.push_back(output.place);
    }
  }
};

}  // namespace penstock
