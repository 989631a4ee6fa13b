// The device that tests of training use: the CPU, or for another run of the same tests, what the
// variable PENSTOCK_TESTED_DEVICE names.
#pragma once

#include <ATen/Context.h>

#include <cstdlib>
#include <string>

#include "graph/device/device_queue.h"

namespace penstock {

inline std::string TestedDevice() {
  const char* const name = std::getenv("PENSTOCK_TESTED_DEVICE");
  if (name == nullptr) return "cpu";
  const std::string device = name;
  if (device == "test_device") {
    at::globalContext().setSDPUseFlash(false);  // it has no such op
  } else {
    (void)OpenDevice(device);  // before PyTorch is used, as programs do
  }
  return device;
}

}  // namespace penstock
