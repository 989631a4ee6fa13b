// Megatron-Core with TransformerEngine, as Megatron-Bridge runs it: fused norms, attention and
// loss, linear layers in 8 and 4 bits, and the dispatchers of experts.
#pragma once

#include "cost_model/implementation.h"

namespace penstock {

Implementation TransformerEngineImplementation();

}  // namespace penstock
