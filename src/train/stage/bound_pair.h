// An overlapped pair of a rank's stages as one program: the forward of a microbatch on one, the
// backward of another on the other (or on the same). Private to train/.
#pragma once

#include <span>
#include <vector>

#include "train/stage/bound_program.h"

namespace penstock {

class BoundPair {
 public:
  // What leaves the two stages, to be taken before the next run.
  struct Leaving {
    std::span<at::Tensor> outputs;
    std::span<at::Tensor> input_gradients;
  };

  // Whether a pair is worth making. In turn is as good where nothing is exchanged, and the only way
  // where the backward draws random numbers, whose seeds I and W set.
  static bool Hides(const StageProgram& forward, const StageProgram& backward) {
    return (forward.exchanges || backward.exchanges) && !backward.backward_random;
  }

  // Requires Hides. The bindings are the stages'; of one stage, the same twice.
  BoundPair(const BoundProgram& forward, const GraphBinding& forward_binding,
            const BoundProgram& backward, const GraphBinding& backward_binding);

  // On what the two microbatches hold.
  Leaving Run(std::span<at::Tensor> forward_held, std::span<at::Tensor> backward_held);

 private:
  Piece piece_;
  std::size_t forward_inputs_;
  std::size_t forward_outputs_;
  std::size_t leaving_forward_;
  GraphProgram program_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> leaving_;  // of the forward, then of the backward
};

}  // namespace penstock
