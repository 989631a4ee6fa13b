// DeviceGroupMemory: the data of a group whose ranks are on one device of this process. Collectives
// run on a stream of the group, so that they do not delay the ranks' own work.
#pragma once

#include <memory>
#include <vector>

#include "collective/group_memory.h"
#include "graph/device/device_queue.h"

namespace penstock {

class DeviceGroupMemory final : public GroupMemory {
 public:
  // Requires: the device is not a CPU.
  explicit DeviceGroupMemory(c10::Device device) : queue_(device) {}

  void Begin() override;
  void End() override;
  void Synchronize() override { queue_.Synchronize(); }
  void Copy(const Piece& from, Bytes to) override;
  void Sum(const std::vector<Piece>& parts, Bytes sum, ElementType type) override;
  ConstBytes OnHost(ConstBytes data, std::vector<std::byte>& kept) override;

 private:
  at::Tensor TensorOf(ConstBytes data, at::ScalarType dtype, c10::Device device) const;
  at::Tensor OnDevice(const Piece& piece, at::ScalarType dtype) const;

  DeviceQueue queue_;
};

// Returns the memory of a group whose ranks here are on the device; null for CPUs.
std::shared_ptr<GroupMemory> GroupMemoryOn(c10::Device device);

}  // namespace penstock
