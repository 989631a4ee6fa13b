// What `penstock train` computes: the kernels and the tensors that the graph compiler makes of a
// stage with `exact: true` and no recomputation.
#pragma once

#include "cost_model/implementation.h"

namespace penstock {

Implementation PenstockImplementation();

}  // namespace penstock
