// The device that tests of training use: the CPU, or for another run of the same tests, what the
// variable PENSTOCK_TESTED_DEVICE names.
#pragma once

#include <ATen/Context.h>

#include <cstdlib>
#include <string>

namespace penstock {

inline std::string TestedDevice() {
  const char* const name = std::getenv("PENSTOCK_TESTED_DEVICE");
  if (name == nullptr) return "cpu";
  at::globalContext().setSDPUseFlash(false);  // devices for tests have no such op
  return name;
}

}  // namespace penstock
