// The chain of actions that determines when a timeline ends.
#pragma once

#include <vector>

#include "explain/inputs.h"

namespace penstock {

// Returns the actions in order of time. Each but the first waits for the one before it: because it
// reads its result, or because both run on the same rank. The last one ends last of all. Where an
// action waits for both at once, the path stays on the rank.
std::vector<ActionAt> CriticalPath(const Schedule& schedule, const Timeline& timeline,
                                   const ActionInputs& inputs);

}  // namespace penstock
