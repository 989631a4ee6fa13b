#pragma once

#include "cli/help/offered_values.h"

namespace penstock {

// The keys of a training configuration and of every model as KEY=, and KEY=VALUE for keys with a
// fixed set of values.
OfferedValues OfferedKeys();

}  // namespace penstock
