// Trains small models on a device and on the CPU, and compares them: what a user of a new device
// runs first. No torch here.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace penstock {

struct DeviceCheck {
  std::string name;       // "model qwen3_moe"
  double difference = 0;  // the largest of the losses, relative to the CPU's
  double limit = 0;       // above it, the check fails
  double seconds = 0;
  std::string error{};  // why the device could not train; empty if it could

  bool passed() const { return error.empty() && difference <= limit; }
};

// Trains each model that the program has, five schedules, and the options of `train` that move
// data in ways of their own, for three steps each and with exact: true; with the device's plugin,
// also graphs and parts of the device. Then it compares the times
// of the device's events with the time that passed. Calls `report` after each check.
// Threads: sets torch's number of threads; no run of this process may train meanwhile. Errors: the
// device cannot be used.
Status CheckDevice(const std::string& device,
                   const std::function<void(const DeviceCheck&)>& report);

// "2.11.0"
std::string TorchVersion();

}  // namespace penstock
