// Products of bf16 matrices in fp32, for processors without bf16 instructions.
//
// The factors are converted block by block and multiplied by the fp32 matmul. The sum is rounded to
// bf16 once. Each thread keeps a few MiB of scratch memory for the blocks.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock {

// Returns whether BatchedProduct can multiply a and b: bf16, [batch, n, k] by [batch, k, m], not
// empty.
bool IsBf16Product(const at::Tensor& a, const at::Tensor& b);

// Returns alpha * a b + beta * added as a contiguous [batch, n, m]. `added` is undefined, or bf16
// and expands to the result. Requires: IsBf16Product(a, b).
at::Tensor BatchedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added,
                          float beta, float alpha);

}  // namespace penstock
