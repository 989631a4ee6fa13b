// What a stage's module is to a capture. Private to train/.
#pragma once

#include <vector>

#include "graph/capture.h"

namespace penstock {

class StageModule;

// The module's parameters by name; tied weights once, under the first of their names.
std::vector<NamedTensor> ParametersOf(const StageModule& module);

}  // namespace penstock
