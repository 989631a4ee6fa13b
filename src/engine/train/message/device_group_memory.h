// DeviceGroupMemory: the data of a group whose ranks are on one device of this process. Collectives
// run on a stream of the group, so that they do not delay the ranks' own work.
#pragma once

#include <memory>
#include <vector>

#include "graph/device/device_queue.h"
#include "runtime/collectives/message_memory.h"

namespace penstock {

class DeviceGroupMemory final : public MessageMemory {
 public:
  // Requires: the device is not a CPU.
  explicit DeviceGroupMemory(c10::Device device) : queue_(device) {}

  void Begin() override;
  void End() override;
  void Synchronize() override { queue_.Synchronize(); }
  void Copy(const Piece& from, Bytes to) override;
  void Sum(const std::vector<Piece>& parts, Bytes sum, ElementType type) override;
  ConstBytes OnHost(ConstBytes data, std::vector<std::byte>& kept) override;
  Message CopyToMessage(ConstBytes data) override;
  Piece DataOf(const Message& message) override;

 private:
  at::Tensor TensorOf(ConstBytes data, at::ScalarType dtype, c10::Device device) const;
  at::Tensor OnDevice(const Piece& piece, at::ScalarType dtype) const;

  DeviceQueue queue_;
};

// Returns the memory of a group whose ranks here are on the device; null for CPUs.
std::shared_ptr<MessageMemory> GroupMemoryOn(c10::Device device);

}  // namespace penstock
