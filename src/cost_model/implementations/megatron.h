// Megatron-LM with its local layers, as most published runs of 2021 to 2023 used it: one kernel per
// operator, attention with all scores in memory, and collectives that F waits for.
#pragma once

#include "cost_model/implementation.h"

namespace penstock {

Implementation MegatronImplementation();

}  // namespace penstock
