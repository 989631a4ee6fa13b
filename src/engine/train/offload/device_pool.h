// DevicePool: an ActivationPool in memory of the host, for tensors on a device.
//
// The memory is pinned if the device has such an allocator. Copies run on two streams, one per
// direction, and no thread of the host waits for them. A transfer keeps its memory for later steps.
#pragma once

#include <optional>
#include <vector>

#include "graph/device/device_queue.h"
#include "train/offload/activation_pool.h"

namespace penstock {

class DevicePool final : public ActivationPool {
 public:
  // Requires: the device is not a CPU.
  explicit DevicePool(c10::Device device) : offloads_(device), reloads_(device) {}
  ~DevicePool() override;

  void Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
               Transfer& transfer) override;
  void Reload(Transfer& transfer) override;
  void Await(std::span<at::Tensor> slots, Transfer& transfer) override;
  void Drop(Transfer& transfer) override;

 private:
  struct OnHost final : Moved {
    struct Content {
      std::size_t slot;       // index in the span given to Offload
      at::Tensor host, back;  // `back` is on the device again; undefined before Reload
    };

    bool empty() const override { return contents.empty(); }

    std::vector<Content> contents;
    std::vector<at::Tensor> memory;  // of earlier steps, by content
    std::int64_t bytes = 0;
    std::atomic<std::int64_t>* offloaded_bytes = nullptr;
    std::optional<DevicePoint> written, read;
  };

  static at::Tensor MemoryFor(const at::Tensor& tensor, OnHost& transfer);

  DeviceQueue offloads_, reloads_;
};

}  // namespace penstock
