// Models as PyTorch code (torchtitan, Hugging Face's transformers), run operator by operator or
// compiled one layer at a time.
#pragma once

#include "cost_model/implementation.h"

namespace penstock {

Implementation TorchImplementation();
Implementation TorchCompileImplementation();

}  // namespace penstock
