// Constant masks as indices: the shape of the result is then the same in every run.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

namespace penstock {

// Returns whether it is aten::index without masks, whose result has the same shape in every run.
bool IndexesByNumbers(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

// Replaces masks among the indices of aten::index by the numbers that they select, if
// `is_constant` says that all of them have the same values in every run.
void ReplaceConstantMasks(const c10::OperatorHandle& op, torch::jit::Stack& arguments,
                          const std::function<bool(const at::Tensor&)>& is_constant);

}  // namespace penstock
