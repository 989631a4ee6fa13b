// Writes docs/schedules.md and its pictures from the catalog and the simulator.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// Writes FOLDER/schedules.md, and FOLDER/pictures/NAME.svg for every algorithm of the catalog. The
// output is deterministic.
// Errors: kInvalidArgument if the folder does not exist.
Status WriteScheduleDocs(const std::string& folder);

}  // namespace penstock
