// PeerCopies: what ranks on other devices of the process have computed, on the rank's device.
//
// The copies run on streams of their own, one on each of the two devices, because PyTorch orders a
// copy after the work that both of its streams have before it. So a copy waits for neither rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>

#include "graph/device/device_queue.h"

namespace penstock {

// Threads: one at a time.
class PeerCopies {
 public:
  explicit PeerCopies(c10::Device device) : here_(device) {}

  // Replaces tensors of another device, which are computed at `ready`, by copies that the calling
  // thread's stream waits for. The host does not wait.
  void Take(DevicePoint& ready, std::span<at::Tensor> tensors);

 private:
  const DeviceQueue here_;
  std::map<c10::DeviceIndex, DeviceQueue> there_;  // by device, once it has sent something
};

}  // namespace penstock
