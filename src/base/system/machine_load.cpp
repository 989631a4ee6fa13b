#include "base/system/machine_load.h"

#include <fmt/format.h>
#include <unistd.h>

namespace penstock {

std::string BusyText(double load, int cores) {
  if (load <= cores) return "";
  return fmt::format("the machine was busy before the run: load {:.1f} on {} core{}", load, cores,
                     cores == 1 ? "" : "s");
}

std::string BusyMachine() {
  double load = 0;
  // Both count the whole machine, also in a container that may use a part of it.
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (getloadavg(&load, 1) != 1 || cores < 1) return "";
  return BusyText(load, static_cast<int>(cores));
}

}  // namespace penstock
