// Ops that a graph cannot repeat. Errors: CaptureError that names the op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace penstock {

// Returns whether a random op takes a generator. A run passes its own generator, so that replays
// draw the same numbers.
bool TakesGenerator(const c10::FunctionSchema& schema);

// Refuses an op that draws random numbers without a generator, or that changes what its schema does
// not say.
void RejectUnrepeatable(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
// Refuses an op that reads values of tensors, which are not the same in every run.
void RejectDataDependent(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace penstock
