// What one type of device can do beyond PyTorch's interface for all devices.
//
// A plugin is a library of its own, because it is built with the device's headers and linked with
// its libraries: the program needs neither. It exports `penstock_device_plugin_NAME`, where NAME is
// the type of device, such as cuda.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/result.h"
#include "graph/device/device_graphs.h"

namespace penstock {

// Changes with DevicePlugin and GraphPool, so that no plugin of another version is used.
constexpr int kDevicePluginVersion = 2;

class DevicePlugin {
 public:
  // The first entry of every version.
  virtual int version() const { return kDevicePluginVersion; }
  virtual ~DevicePlugin() = default;
  virtual std::unique_ptr<GraphPool> MakeGraphPool(c10::Device device) = 0;
  // A new stream that uses the part-th of `parts` parts of the device's processors, which do not
  // overlap. Throws std::exception if the device cannot be divided so.
  virtual c10::Stream MakePartStream(c10::Device device, int part, int parts) = 0;
  // A backend of c10d that sends tensors of the device, for the process `rank` of those `size` that
  // share the store. Throws std::exception if there is none.
  virtual c10::intrusive_ptr<c10d::Backend> MakeBackend(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) = 0;
};
using DevicePluginFunction = DevicePlugin* (*)();

// Returns the plugin for the device: one that this process has loaded, or libpenstock_NAME.so in
// the folder of the program, in ../lib/penstock of it, or where the system finds libraries. It
// lives as long as the process. Errors: kUnavailable. Threads: any.
Result<DevicePlugin*> OpenDevicePlugin(c10::Device device);

}  // namespace penstock
