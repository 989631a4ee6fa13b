// A fused kernel as an op of a graph:
//
//   penstock::fused(Tensor[] inputs, str kernel) -> Tensor[]
//   penstock::fused_gather(Tensor(a!) gathered, Tensor[] inputs, str kernel) -> Tensor[]
//
// The second one also adds to a gathered gradient, as its kernel's last output.
// `kernel` is a kernel's text (kernel/kernel.h); inputs are whole values of the dtypes that it
// loads, never views, for its accesses say where in them it reads. GraphProgram calls the kernel
// without the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <initializer_list>
#include <string>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

c10::OperatorHandle FusedOp();
c10::OperatorHandle FusedGatherOp();
// The kernel's text where the node calls one of these, else null.
const std::string* FusedKernelText(const Node& node);
// Makes ready all kernels that the graphs call, in one run of the compiler (see LoadKernels).
Status LoadKernelsOf(std::initializer_list<const Graph*> graphs);

}  // namespace penstock
