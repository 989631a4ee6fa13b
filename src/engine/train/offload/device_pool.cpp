#include "train/offload/device_pool.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include "base/result.h"

namespace penstock {

DevicePool::~DevicePool() {
  offloads_.Synchronize();
  reloads_.Synchronize();
}

at::Tensor DevicePool::MemoryFor(const at::Tensor& tensor, OnHost& transfer) {
  const std::size_t index = transfer.contents.size();
  if (index < transfer.memory.size()) {
    const at::Tensor& kept = transfer.memory[index];
    if (kept.sizes() == tensor.sizes() && kept.strides() == tensor.strides() &&
        kept.scalar_type() == tensor.scalar_type()) {
      return kept;
    }
  }
  transfer.memory.resize(index);
  const bool pinned = at::globalContext()
                          .getAcceleratorHooksInterface(tensor.device().type())
                          .getPinnedMemoryAllocator() != nullptr;
  const auto options =
      at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU).pinned_memory(pinned);
  return transfer.memory.emplace_back(at::empty_strided(tensor.sizes(), tensor.strides(), options));
}

void DevicePool::Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
                         Transfer& of) {
  if (!of.moved) of.moved = std::make_unique<OnHost>();
  auto& transfer = static_cast<OnHost&>(*of.moved);
  PENSTOCK_CHECK(transfer.empty(), "OFFLOAD of a microbatch that is already offloaded");
  const at::NoGradGuard no_gradients;
  DevicePoint computed(offloads_.device());
  const DeviceScope scope(offloads_);
  transfer.bytes = 0;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    at::Tensor& tensor = slots[slot];
    if (!IsOffloaded(tensor)) continue;
    computed.Await({&tensor, 1});
    at::Tensor host = MemoryFor(tensor, transfer);
    host.copy_(tensor, /*non_blocking=*/true);
    transfer.bytes += static_cast<std::int64_t>(tensor.nbytes());
    tensor.reset();
    transfer.contents.push_back({slot, std::move(host), {}});
  }
  transfer.written.emplace(offloads_.device());
  transfer.offloaded_bytes = &offloaded_bytes;
  offloaded_bytes.fetch_add(transfer.bytes, std::memory_order_relaxed);
}

void DevicePool::Reload(Transfer& of) {
  auto& transfer = static_cast<OnHost&>(*of.moved);
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(reloads_);
  transfer.written->Await(reloads_.stream());
  transfer.offloaded_bytes->fetch_sub(transfer.bytes, std::memory_order_relaxed);
  for (OnHost::Content& content : transfer.contents) {
    content.back = content.host.to(reloads_.device(), /*non_blocking=*/true);
  }
  transfer.read.emplace(reloads_.device());
}

void DevicePool::Await(std::span<at::Tensor> slots, Transfer& of) {
  if (of.empty()) return;
  auto& transfer = static_cast<OnHost&>(*of.moved);
  PENSTOCK_CHECK(transfer.read.has_value(), "a microbatch was not reloaded");
  for (OnHost::Content& content : transfer.contents) {
    transfer.read->Await({&content.back, 1});
    slots[content.slot] = std::move(content.back);
  }
  transfer.contents.clear();
  transfer.read.reset();
}

void DevicePool::Drop(Transfer& of) {
  if (of.empty()) return;
  auto& transfer = static_cast<OnHost&>(*of.moved);
  offloads_.Synchronize();
  reloads_.Synchronize();
  if (!transfer.read) {
    transfer.offloaded_bytes->fetch_sub(transfer.bytes, std::memory_order_relaxed);
  }
  transfer.contents.clear();
  transfer.read.reset();
}

}  // namespace penstock
