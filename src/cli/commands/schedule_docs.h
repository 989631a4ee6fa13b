// docs/schedules.md and its pictures, made from the catalog and the simulator.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// Writes FOLDER/schedules.md and FOLDER/pictures/NAME.svg of every algorithm of the catalog. The
// same program always writes the same bytes.
// Errors: kInvalidArgument where the folder is missing.
Status WriteScheduleDocs(const std::string& folder);

}  // namespace penstock
