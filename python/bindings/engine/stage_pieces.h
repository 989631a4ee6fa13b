// A stage compiled for another runtime: its graphs as Python data.
//
// Threads: any that holds the GIL. Errors: std::runtime_error with a one-line message.
#pragma once

#include <memory>
#include <optional>

#include "bindings/engine/built_stages.h"
#include "graph/ir/fingerprint.h"

namespace penstock::python {

class StagePieces {
 public:
  // Captures and compiles the stage of `parts`. Gradients belong to the sum of the losses. I of a
  // first stage computes what several gradients of parameters read.
  StagePieces(const StageParts& parts, bool is_first, bool is_last, bool captures_only);

  // Returns where the other capture of the stage differs.
  std::optional<CaptureDifference> FindDifference(const StagePieces& other) const;
  // Returns examples of the outputs.
  Tensors ExampleOutputs() const;
  // Returns the number of slots, and by input and output the slot and whether it has a gradient;
  // an output's slot is its gradient's, or -1. Then the buffers that the last outputs update.
  nb::tuple Ports() const;
  // Returns the pieces for F, I and W. A piece is a tuple:
  //   inputs   (value, slot, whether no later piece reads it)
  //   outputs  (value, slot); the slot is -1 for what leaves the stage
  //   bound    (value, kind, index, tensor); kind is "parameter", "gradient" or "tensor", and index
  //            the parameter's
  //   nodes    (op, overload, arguments, outputs), see ArgumentOf
  //   types    by value: (sizes, strides, root, offset); the root is -1 unless it is a view
  nb::tuple Pieces() const;
  // Returns the piece for F of this stage and B of a stage of the same rank, in which the
  // collectives of each run beside the other. Slots of B's microbatch follow the ones of F's, and
  // parameters of another stage follow this one's. None if both have no collectives, or both draw
  // random numbers.
  nb::object Pair(const StagePieces& backward, bool is_same_stage) const;

 private:
  StageProgram program_;
  int parameters_ = 0;
  c10::Device device_ = c10::kCPU;
};

}  // namespace penstock::python
