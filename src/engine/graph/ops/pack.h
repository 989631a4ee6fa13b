// penstock::pack(Tensor[] parts, int[] starts, int size, ScalarType dtype) -> Tensor
//
// Copies the elements of each part, in the order of its dimensions, to a tensor of `size` elements
// of `dtype`, from its start on. Elements in no part are 0.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// Returns the op. Its kernel throws c10::Error for a part that does not fit.
c10::OperatorHandle PackOp();

}  // namespace penstock
