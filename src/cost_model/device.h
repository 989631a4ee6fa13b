// What a device and its links can do at most.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost_model/microbatch.h"

namespace penstock {

// FLOP/s without sparsity; bytes; bytes per second in one direction.
struct Device {
  std::string name;
  double bf16_flops = 0;  // and fp16
  double f32_flops = 0;
  double fp8_flops = 0;  // 0: the device has no such units; likewise for fp4
  double fp4_flops = 0;
  double memory = 0;
  double memory_bandwidth = 0;
  double link_bandwidth = 0;     // to all other devices of its node together
  double network_bandwidth = 0;  // to other nodes
  double host_bandwidth = 0;     // to the memory of the host
  double latency = 10e-6;        // of a message, in seconds
  int linked_devices = 0;        // that the links join beyond a node (72 in an NVL72); 0: a node's
  // Factors of the times of kernels and of the host by format, for what no constant explains, such
  // as clocks under a limit of power (docs/cost_model.md). bf16's is fp16's, too.
  double bf16_time_factor = 1;
  double fp8_time_factor = 1;
  double fp8_blockwise_time_factor = 1;
  double mxfp8_time_factor = 1;
  double nvfp4_time_factor = 1;
  std::string vendor = "nvidia";  // whose kernels and dispatchers it runs

  double flops(Precision precision) const {
    switch (precision) {
      case Precision::kFp32:
        return f32_flops;
      case Precision::kBf16:
      case Precision::kFp16:
        return bf16_flops;
      case Precision::kFp8:
      case Precision::kFp8Blockwise:
      case Precision::kMxfp8:
        return fp8_flops;
      case Precision::kNvfp4:
        break;
    }
    return fp4_flops;
  }

  double time_factor(Precision precision) const {
    switch (precision) {
      case Precision::kFp32:
        return 1;
      case Precision::kBf16:
      case Precision::kFp16:
        return bf16_time_factor;
      case Precision::kFp8:
        return fp8_time_factor;
      case Precision::kFp8Blockwise:
        return fp8_blockwise_time_factor;
      case Precision::kMxfp8:
        return mxfp8_time_factor;
      case Precision::kNvfp4:
        break;
    }
    return nvfp4_time_factor;
  }
};

const std::vector<Device>& KnownDevices();
std::vector<std::string_view> DeviceNames();
// Errors: kNotFound, with the nearest name.
Result<Device> FindDevice(std::string_view name);

// Reads a device from a YAML file with the fields of Device as keys. `like` names a known device
// whose values the file overrides. Errors: as LoadYaml; kInvalidArgument, naming file and key.
Result<Device> ReadDevice(const std::string& path);

}  // namespace penstock
