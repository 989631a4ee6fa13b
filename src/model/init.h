// Initial values of parameters, each from the seed and the parameter's name alone.
#pragma once

#include "model/model.h"

namespace penstock {

// Norm weights (one dimension) become 1; matrices normal with deviation 0.02, those that add to
// the residual stream ("wo", "w2") less by sqrt(2 * layers), as GPT-2 does (Radford et al. 2019,
// section 2.3).
void InitializeParameters(StageModule& stage, const ModelConfig& config);

}  // namespace penstock
