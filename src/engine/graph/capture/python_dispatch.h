// What Python has in the way of the ops of a capture: subclasses of torch.Tensor that compute in
// __torch_dispatch__ (DTensor, and results of collectives that are in flight), and dispatch modes.
//
// Up to torch 2.12, __torch_dispatch__ runs below captures and without their key, so that the ops
// it calls would be lost: captures call it themselves. Since 2.13, it runs above them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace penstock {

// Whether __torch_dispatch__ of an argument decides what the op computes.
bool IsOfSubclass(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  const torch::jit::Stack& stack);
// Calls it, with the thread's dispatch modes, so that the ops it calls are captured.
void CallSubclass(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Whether the thread infers shapes with tensors that have no memory, as DTensor does. Its ops are
// no part of a stage.
bool InfersShapes(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Whether the op has no kernel of its own but calls other ops. `keys` are below captures'. Autograd
// replaces such ops, but not within __torch_dispatch__. Ops that have both (silu_backward) are no
// composites: what a device's kernel calls is no part of a graph.
bool IsComposite(const c10::OperatorHandle& op, c10::DispatchKeySet keys);

}  // namespace penstock
