// When a file was last changed.
#pragma once

#include <sys/stat.h>

namespace penstock {

// Returns seconds of the system clock.
inline double ChangeTime(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

}  // namespace penstock
