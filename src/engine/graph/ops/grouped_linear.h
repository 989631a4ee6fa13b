// Matmuls of groups of rows with the matrices of their experts.
//
//   penstock::grouped_linear(Tensor x, Tensor weight, Tensor counts) -> Tensor
//   penstock::grouped_linear_input(Tensor gradient, Tensor weight, Tensor counts) -> Tensor
//   penstock::grouped_linear_weight(Tensor gradient, Tensor x, Tensor counts, int experts)
//       -> Tensor
//   penstock::grouped_linear_weight_(Tensor(a!) sum, Tensor gradient, Tensor x, Tensor counts)
//       -> Tensor(a!)
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock {

// Multiplies the rows x [N, in] by the transposed weight [experts, out, in] of their expert.
// Returns [N, out]. counts [G * experts] int64 are the lengths of consecutive groups of rows, and
// group i belongs to expert i % experts. (With G > 1, each block of `experts` groups comes from
// another rank.) Rows after the last group are zero in the result. Supports autograd: the gradients
// of x and of the weight are separate ops. Throws c10::Error for more rows in groups than there
// are.
at::Tensor GroupedLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& counts);

}  // namespace penstock
