// Why no division of the devices has the dimensions that are given.
#pragma once

#include <optional>

#include "base/result.h"
#include "plan/search/division.h"

namespace penstock {

// Returns an error for the first given dimension that does not divide the devices that the ones
// before it leave, or for replicas that do not divide the batch. Returns nothing if all divide.
std::optional<Error> IndivisibleDimension(const DivisionQuestion& question);

}  // namespace penstock
