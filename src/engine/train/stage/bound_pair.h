// BoundPair: an overlapped pair as one program. It runs the forward of one microbatch on a stage
// and the backward of another microbatch on the same stage or another one of the rank. Private to
// train/.
#pragma once

#include <span>
#include <vector>

#include "graph/analysis/node_costs.h"
#include "train/stage/bound_program.h"

namespace penstock {

class BoundPair {
 public:
  // The tensors that leave the two stages. The caller moves them out before the next run.
  struct Leaving {
    std::span<at::Tensor> outputs;
    std::span<at::Tensor> input_gradients;
  };

  // Returns whether compiling the pair hides exchanges between ranks. Without exchanges, running
  // the parts in turn is as fast. If the backward draws random numbers, the parts must run in turn,
  // because a program has one seed.
  static bool HidesExchanges(const StageProgram& forward, const StageProgram& backward) {
    return (forward.exchanges || backward.exchanges) && !backward.backward_random;
  }

  // The bindings belong to the two stages, or are the same object for a single stage. The pair is
  // ordered by the node costs that the stage was compiled with, or else `costs`. Requires:
  // HidesExchanges.
  BoundPair(const BoundProgram& forward, const GraphBinding& forward_binding,
            const BoundProgram& backward, const GraphBinding& backward_binding,
            const NodeCosts& costs);

  // Runs both parts on the slots of their microbatches.
  Leaving Run(std::span<at::Tensor> forward_slots, std::span<at::Tensor> backward_slots);

 private:
  StagePiece piece_;
  std::size_t forward_inputs_;
  std::size_t forward_outputs_;
  std::size_t leaving_forward_;
  GraphProgram program_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> leaving_;  // of the forward, then of the backward
};

}  // namespace penstock
