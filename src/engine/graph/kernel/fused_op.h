// A fused kernel as an op of a graph:
//
//   penstock::fused(Tensor[] inputs, str kernel) -> Tensor[]
//   penstock::fused_gather(Tensor(a!) gathered, Tensor[] inputs, str kernel) -> Tensor[]
//
// The second op also adds to a gradient accumulator, the last output of its kernel. (Stored
// programs contain these names, so they do not change.) `kernel` is the text of a kernel
// (kernel.h). Inputs have the dtypes that it loads. GraphProgram calls the kernel without the
// dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <initializer_list>
#include <string>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

c10::OperatorHandle FusedOp();
c10::OperatorHandle FusedAccumulateOp();
// Returns the text of the node's kernel, or null if the node calls neither op.
const std::string* FusedKernelText(const Node& node);
// Loads all kernels that the graphs call, as FusedCall::Load.
Status LoadKernelsOf(std::initializer_list<const Graph*> graphs, c10::Device device = c10::kCPU);

}  // namespace penstock
