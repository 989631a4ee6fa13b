#include "graph/device/device_queue.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace penstock {
namespace {

using c10::impl::VirtualGuardImpl;

c10::Stream NewStream(c10::Device device) {
  const c10::DeviceGuard guard(device);
  return VirtualGuardImpl(device.type()).getNewStream(device);
}

}  // namespace

DeviceQueue::DeviceQueue(c10::Device device) : stream_(NewStream(device)) {}

void DeviceQueue::Enter() const {
  const VirtualGuardImpl impl(device().type());
  impl.setDevice(device());
  impl.exchangeStream(stream_);
  c10::Event started(device().type());
  started.record(impl.getDefaultStream(device()));
  started.block(stream_);
}

DeviceScope::DeviceScope(const DeviceQueue& queue)
    : before_(VirtualGuardImpl(queue.device().type()).exchangeStream(queue.stream())) {}

DeviceScope::~DeviceScope() { VirtualGuardImpl(before_.device_type()).exchangeStream(before_); }

void KeepUntilRead(std::span<const at::Tensor> tensors, const c10::Stream& stream) {
  const VirtualGuardImpl impl(stream.device_type());
  for (const at::Tensor& tensor : tensors) {
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
}

DevicePoint::DevicePoint(c10::Device device) : event_(device.type()) {
  event_.record(VirtualGuardImpl(device.type()).getStream(device));
}

void DevicePoint::Await(std::span<const at::Tensor> tensors) {
  const VirtualGuardImpl impl(event_.device_type());
  const c10::Stream stream = impl.getStream(tensors.front().device());
  event_.block(stream);
  KeepUntilRead(tensors, stream);
}

}  // namespace penstock
