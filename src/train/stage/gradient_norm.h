// Norms of gradients. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock {

// Returns the sum of the squares of a dense fp32 or bf16 tensor, accumulated in fp64 in an order
// that depends only on the number of elements. Not finite if an element is not.
double SquaredNorm(const at::Tensor& tensor);

}  // namespace penstock
