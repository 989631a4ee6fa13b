// Gives passes, a lower layer, access to the simulator.
#pragma once

#include "schedule/passes/pass_table.h"

namespace penstock {

// Returns a context whose pricer simulates with `costs`.
PassContext SimulatedContext(const Costs& costs);

}  // namespace penstock
