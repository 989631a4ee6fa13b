// Checks of the files that a command will write, before it works for long.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// Refuses the path of an option if its folder is missing or not writable.
Status CheckFolderOf(const std::string& option, const std::string& path);

}  // namespace penstock
