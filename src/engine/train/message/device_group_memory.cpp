#include "train/message/device_group_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "train/message/tensor_message.h"

namespace penstock {
namespace {

at::ScalarType DtypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return at::kFloat;
    case ElementType::kBfloat16:
      return at::kBFloat16;
    case ElementType::kFloat64:
      return at::kDouble;
    case ElementType::kInt64:
      break;
  }
  return at::kLong;
}

}  // namespace

void DeviceGroupMemory::Begin() { DevicePoint(queue_.device()).Await(queue_.stream()); }

void DeviceGroupMemory::End() {
  const DeviceScope scope(queue_);
  DevicePoint(queue_.device()).Await(scope.before());
}

at::Tensor DeviceGroupMemory::TensorOf(ConstBytes data, at::ScalarType dtype,
                                       c10::Device device) const {
  const auto elements = static_cast<std::int64_t>(data.size() / c10::elementSize(dtype));
  return at::for_blob(const_cast<std::byte*>(data.data()), {elements})
      .options(at::TensorOptions().dtype(dtype).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor DeviceGroupMemory::OnDevice(const Piece& piece, at::ScalarType dtype) const {
  if (!piece.on_host) return TensorOf(piece.data, dtype, queue_.device());
  return TensorOf(piece.data, dtype, c10::kCPU).to(queue_.device());
}

void DeviceGroupMemory::Copy(const Piece& from, Bytes to) {
  if (to.empty() || from.data.data() == to.data()) return;
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(queue_);
  const c10::Device source = from.on_host ? c10::Device(c10::kCPU) : queue_.device();
  TensorOf(to, at::kByte, queue_.device()).copy_(TensorOf(from.data, at::kByte, source));
}

void DeviceGroupMemory::Sum(const std::vector<Piece>& parts, Bytes sum, ElementType type) {
  if (sum.empty()) return;
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(queue_);
  const at::ScalarType dtype = DtypeOf(type);
  const at::ScalarType wide = dtype == at::kBFloat16 ? at::kFloat : dtype;
  at::Tensor total = OnDevice(parts.front(), dtype).to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < parts.size(); ++i) total.add_(OnDevice(parts[i], dtype).to(wide));
  TensorOf(sum, dtype, queue_.device()).copy_(total);
}

GroupMemory::ConstBytes DeviceGroupMemory::OnHost(ConstBytes data, std::vector<std::byte>& kept) {
  kept.resize(data.size());
  if (data.empty()) return kept;
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(queue_);
  TensorOf(kept, at::kByte, c10::kCPU).copy_(TensorOf(data, at::kByte, queue_.device()));
  return kept;
}

Message DeviceGroupMemory::CopyToMessage(ConstBytes data) {
  if (data.empty()) return AllocateMessage(0);
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(queue_);
  at::Tensor copy = TensorOf(data, at::kByte, queue_.device()).clone();
  return ToMessage({&copy, 1});
}

GroupMemory::Piece DeviceGroupMemory::DataOf(const Message& message) {
  const std::span<const MessagePart> parts = message.parts();
  const MessagePart data = parts.empty() ? MessagePart() : parts.front();
  const bool on_host = DeviceTensors(message).empty();
  if (!on_host) {
    const DeviceScope scope(queue_);
    AwaitTensors(message);
  }
  return {{static_cast<const std::byte*>(data.data), data.bytes}, on_host};
}

std::shared_ptr<MessageMemory> GroupMemoryOn(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_shared<DeviceGroupMemory>(device);
}

}  // namespace penstock
