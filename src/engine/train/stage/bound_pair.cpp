#include "train/stage/bound_pair.h"

#include <algorithm>

#include "base/index.h"
#include "graph/overlap_stages.h"

namespace penstock {
namespace {

std::size_t CountLeaving(std::span<const int> outputs) {
  return Index(std::count(outputs.begin(), outputs.end(), -1));
}

// Appends the parameters of the backward to the binding of the forward. The generator stays the
// forward's, because the backward draws no random numbers.
GraphBinding Combined(GraphBinding binding, const GraphBinding& more) {
  const auto append = [](std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(binding.parameters, more.parameters);
  append(binding.gradients, more.gradients);
  return binding;
}

// All ranks of a group must have the same costs, so that they issue their collectives in the same
// order.
StagePiece PieceOf(const BoundProgram& forward, const BoundProgram& backward,
                   std::size_t parameters, const NodeCosts& costs) {
  const StagePiece& compiled = forward.program.overlapped;
  if (&forward == &backward && !compiled.graph.name.empty()) return compiled;
  return OverlapStages(forward.program, backward.program, static_cast<int>(parameters), costs)
      .value();
}

}  // namespace

BoundPair::BoundPair(const BoundProgram& forward, const GraphBinding& forward_binding,
                     const BoundProgram& backward, const GraphBinding& backward_binding,
                     const NodeCosts& costs)
    : piece_(PieceOf(forward, backward,
                     &forward_binding == &backward_binding ? 0 : forward_binding.parameters.size(),
                     costs)),
      forward_inputs_(forward.program.forward.inputs.size()),
      forward_outputs_(forward.program.forward.outputs.size()),
      leaving_forward_(CountLeaving(forward.program.forward.outputs)),
      program_(piece_.graph, &forward_binding == &backward_binding
                                 ? forward_binding
                                 : Combined(forward_binding, backward_binding)),
      inputs_(piece_.inputs.size()),
      outputs_(piece_.outputs.size()),
      leaving_(CountLeaving(piece_.outputs)) {}

BoundPair::Leaving BoundPair::Run(std::span<at::Tensor> forward_slots,
                                  std::span<at::Tensor> backward_slots) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const std::span<at::Tensor> slots = i < forward_inputs_ ? forward_slots : backward_slots;
    at::Tensor& value = slots[piece_.inputs[i]];
    inputs_[i] = piece_.last[i] ? std::move(value) : value;
  }
  program_.Run(inputs_, outputs_);
  std::size_t left = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const int slot = piece_.outputs[i];
    PENSTOCK_CHECK(slot < 0 || i < forward_outputs_, "the backward of a pair writes slot {}", slot);
    (slot < 0 ? leaving_[left++] : forward_slots[slot]) = std::move(outputs_[i]);
  }
  const std::span<at::Tensor> all = leaving_;
  return {all.first(leaving_forward_), all.subspan(leaving_forward_)};
}

}  // namespace penstock
