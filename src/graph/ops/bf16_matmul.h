// Products of bf16 matrices, computed in fp32: for processors without instructions for bf16.
//
// The factors are converted block by block and multiplied by the fp32 matmul; the sum is rounded to
// bf16 once, at the end. Blocks bound the scratch memory: a few MiB per thread, kept for the next
// call.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock {

// Whether BatchedProduct takes these: bf16, [batch, n, k] by [batch, k, m], nothing empty.
bool IsBf16Product(const at::Tensor& a, const at::Tensor& b);

// alpha a b + beta added, for every matrix of the batch; `added` may be undefined, else it is bf16
// and expands to the result. Returns a contiguous [batch, n, m]. Requires IsBf16Product(a, b).
at::Tensor BatchedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added,
                          float beta, float alpha);

}  // namespace penstock
