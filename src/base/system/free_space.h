// The free space of a disk.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace penstock {

// Checks that the disk of an existing folder has room for `bytes` of `what` ("the run's last
// files"). Where the file system does not say how much is free, there is room. Errors:
// kUnavailable.
Status CheckFreeSpace(const std::string& folder, std::int64_t bytes, const std::string& what);

}  // namespace penstock
