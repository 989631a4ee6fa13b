// Lends the simulator to passes, which lie below it.
#pragma once

#include "schedule/passes/pass_table.h"

namespace penstock {

// A context whose pricer simulates under `costs`.
PassContext SimulatedContext(const Costs& costs);

}  // namespace penstock
