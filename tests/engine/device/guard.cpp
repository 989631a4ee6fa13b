// Registers the test device with PyTorch: streams, events and allocations.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/engine/device/runtime.h"

namespace penstock::testing {
namespace {

using c10::DeviceIndex;
using c10::DeviceType;
using EventPointer = std::shared_ptr<Event>;

int IdOf(const c10::Stream& stream) { return static_cast<int>(stream.id()); }
c10::Device DeviceAt(int index) {
  return {DeviceType::PrivateUse1, static_cast<DeviceIndex>(index)};
}
int IndexOf(c10::Device device) {
  return device.has_index() ? device.index() : Device::CurrentDevice();
}
c10::Stream StreamOf(int id) {
  return c10::Stream(c10::Stream::UNSAFE, DeviceAt(Device::Get().DeviceOf(id)), id);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr DeviceType static_type = DeviceType::PrivateUse1;

  DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return DeviceAt(std::exchange(Device::CurrentDevice(), IndexOf(device)));
  }
  c10::Device getDevice() const override { return DeviceAt(Device::CurrentDevice()); }
  void setDevice(c10::Device device) const override { Device::CurrentDevice() = IndexOf(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    Device::CurrentDevice() = IndexOf(device);
  }
  DeviceIndex deviceCount() const noexcept override { return kTestDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return StreamOf(Device::CurrentStream(IndexOf(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return StreamOf(IndexOf(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return StreamOf(Device::Get().NewStream(IndexOf(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return StreamOf(Device::Get().NewStream(IndexOf(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return StreamOf(std::exchange(Device::CurrentStream(IndexOf(stream.device())), IdOf(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Device::Get().SynchronizeStream(IdOf(stream), "wait for a stream");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Device::Get().RecordUse(data.get(), IdOf(stream));
  }

  void record(void** event, const c10::Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventPointer;
    *static_cast<EventPointer*>(*event) = Device::Get().Record(IdOf(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Device::Get().Await(IdOf(stream), *static_cast<EventPointer*>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || (*static_cast<EventPointer*>(event))->reached;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Device::Get().SynchronizeEvent(**static_cast<EventPointer*>(event));
  }
  double elapsedTime(void* first, void* second, DeviceIndex) const override {
    const auto at = [](void* event) { return (*static_cast<EventPointer*>(event))->at; };
    return std::chrono::duration<double, std::milli>(at(second) - at(first)).count();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<EventPointer*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void Free(void* address) { Device::Get().Free(address); }

class TestAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = DeviceAt(Device::CurrentDevice());
    if (bytes == 0) return {nullptr, device};
    void* const address = Device::Get().Allocate(bytes);
    return {address, address, &Free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "copies of storages run as ops on the test device");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Device::Get().RecordUse(data.get(), static_cast<int>(stream.id()));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto [now, peak] = Device::Get().Bytes();
    auto& bytes = stats.allocated_bytes[0];  // of all kinds
    bytes.current = static_cast<std::int64_t>(now);
    bytes.peak = static_cast<std::int64_t>(peak);
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override { Device::Get().ResetPeakBytes(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex) override {
    constexpr std::size_t kBytes = std::size_t{1} << 34;
    return {kBytes - std::min(kBytes, Device::Get().Bytes().first), kBytes};
  }
};
TestAllocator allocator;
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, &allocator)

// Pinned memory of the host, which asynchronous copies access.
class PinnedAllocator final : public c10::Allocator {
 public:
  bool Has(const void* data) {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(data);
  }
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void Free(void* data);

  std::mutex mutex_;
  std::set<const void*> blocks_;
};
PinnedAllocator pinned;

c10::DataPtr PinnedAllocator::allocate(std::size_t bytes) {
  void* const data = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
  const std::lock_guard lock(mutex_);
  blocks_.insert(data);
  return {data, data, Free, c10::kCPU};
}

void PinnedAllocator::Free(void* data) {
  {
    const std::lock_guard lock(pinned.mutex_);
    pinned.blocks_.erase(data);
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kTestDevices; }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  bool isPinnedPtr(const void* data) const override { return pinned.Has(data); }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();  // its kernels are the CPU's
  }
};
const bool registered = [] {
  c10::register_privateuse1_backend("test_device");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace penstock::testing
