// What a device and its links can do at most.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analytic/microbatch.h"
#include "base/result.h"

namespace penstock {

// FLOP/s without sparsity; bytes; bytes per second in one direction.
struct Device {
  std::string name;
  double bf16_flops = 0;
  double f32_flops = 0;
  double memory = 0;
  double memory_bandwidth = 0;
  double link_bandwidth = 0;     // to all other devices of its node together
  double network_bandwidth = 0;  // to other nodes
  double host_bandwidth = 0;     // to the memory of the host
  double latency = 10e-6;        // of a message, in seconds

  double flops(Precision precision) const {
    return precision == Precision::kBf16 ? bf16_flops : f32_flops;
  }
};

const std::vector<Device>& KnownDevices();
std::vector<std::string_view> DeviceNames();
// Errors: kNotFound, with the nearest name.
Result<Device> FindDevice(std::string_view name);

// Reads a device from a YAML file with the fields of Device as keys. `like` names a known device
// whose values the file overrides. Errors: those of LoadYaml; kInvalidArgument, naming file and
// key.
Result<Device> ReadDevice(const std::string& path);

}  // namespace penstock
