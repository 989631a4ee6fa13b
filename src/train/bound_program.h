// A stage's compiled pieces, bound to its parameters and gradients and ready to run. Private to
// train/.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/compile.h"
#include "graph/interpret.h"

namespace penstock {

// A piece bound to its program, with room for what goes in and out.
struct BoundPiece {
  Piece piece;
  GraphProgram program;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;

  BoundPiece(Piece from, const GraphBinding& binding)
      : piece(std::move(from)),
        program(piece.graph, binding),
        inputs(piece.inputs.size()),
        outputs(piece.outputs.size()) {}

  // Runs on what the row holds; returns what leaves the stage.
  at::Tensor Run(std::span<at::Tensor> held) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& value = held[static_cast<std::size_t>(piece.inputs[i])];
      inputs[i] = piece.last[i] ? std::move(value) : value;
    }
    program.Run(inputs, outputs);
    at::Tensor result;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      at::Tensor& to =
          piece.outputs[i] < 0 ? result : held[static_cast<std::size_t>(piece.outputs[i])];
      to = std::move(outputs[i]);
    }
    return result;
  }
};

// One shape of input and its pieces.
struct BoundProgram {
  StageProgram program;
  BoundPiece forward;
  BoundPiece backward_input;
  BoundPiece backward_weight;

  BoundProgram(StageProgram from, const GraphBinding& binding)
      : program(std::move(from)),
        forward(program.forward, binding),
        backward_input(program.backward_input, binding),
        backward_weight(program.backward_weight, binding) {}

  const TensorType& targets() const {
    return program.forward.graph.value(program.forward.graph.inputs[1]).type;
  }
};

}  // namespace penstock
