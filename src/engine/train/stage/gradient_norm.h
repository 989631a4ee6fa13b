// Norms of gradients. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace penstock {

// Returns the sum of the squares of a dense fp32 or bf16 tensor on the CPU, accumulated in fp64 in
// an order that depends only on the number of elements. Not finite if an element is not.
double SquaredNorm(const at::Tensor& tensor);

// Returns SquaredNorm of each of several tensors on one device, of any type. The host waits for it
// once; elements of devices other than CPUs are added in the order of PyTorch's kernels.
std::vector<double> SquaredNorms(std::span<const at::Tensor> tensors);

}  // namespace penstock
