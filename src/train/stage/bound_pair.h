// An overlapped pair of a rank's stages as one program: the forward of one microbatch on a stage,
// and the backward of another microbatch on another stage or the same one. Private to train/.
#pragma once

#include <span>
#include <vector>

#include "train/stage/bound_program.h"

namespace penstock {

class BoundPair {
 public:
  // The tensors that leave the two stages, to be moved out before the next run.
  struct Leaving {
    std::span<at::Tensor> outputs;
    std::span<at::Tensor> input_gradients;
  };

  // Returns whether a pair is worth compiling. Running the parts in turn is equally good if there
  // are no collectives, and it is required if the backward draws random numbers, because I and W
  // set their seeds.
  static bool Hides(const StageProgram& forward, const StageProgram& backward) {
    return (forward.exchanges || backward.exchanges) && !backward.backward_random;
  }

  // Requires Hides. The bindings are those of the stages; for a single stage, pass the same one
  // twice.
  BoundPair(const BoundProgram& forward, const GraphBinding& forward_binding,
            const BoundProgram& backward, const GraphBinding& backward_binding);

  // Runs on the slots of the two microbatches.
  Leaving Run(std::span<at::Tensor> forward_slots, std::span<at::Tensor> backward_slots);

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
