// How large a gradient is. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock {

// The sum of the squares of a dense fp32 tensor, added up in fp64 in an order that depends on its
// number of elements alone. Not finite where an element is not.
double SquaredNorm(const at::Tensor& tensor);

}  // namespace penstock
