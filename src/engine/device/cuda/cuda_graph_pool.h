// CUDA graphs.
#pragma once

#include <memory>

#include "graph/device/device_graphs.h"

namespace penstock {

// Records on the thread's stream, which must not be the default one.
std::unique_ptr<GraphPool> MakeCudaGraphPool();

}  // namespace penstock
