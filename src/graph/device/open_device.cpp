#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>

#include "graph/device/device_queue.h"

namespace penstock {
namespace {

// The library of PyTorch that registers a type of device, so that the program need not link it.
const char* LibraryOf(c10::DeviceType type) {
  switch (type) {
    case c10::DeviceType::CUDA:
      return "libtorch_cuda.so";
    case c10::DeviceType::HIP:
      return "libtorch_hip.so";
    case c10::DeviceType::XPU:
      return "libtorch_xpu.so";
    default:
      return nullptr;
  }
}

bool HasGuard(c10::DeviceType type) { return c10::impl::hasDeviceGuardImpl(type); }

Status Load(c10::DeviceType type, std::string_view name) {
  const char* const library = LibraryOf(type);
  if (HasGuard(type) || library == nullptr) return {};
  if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
  const char* const reason = dlerror();
  return tl::unexpected(Error{
      ErrorCode::kUnavailable,
      fmt::format("device {}: PyTorch's {} cannot be loaded ({}); install a PyTorch that is built "
                  "for it",
                  name, library, reason == nullptr ? "no reason given" : reason)});
}

Result<c10::Device> Parse(std::string_view name) {
  try {
    return c10::Device(std::string(name));
  } catch (const c10::Error&) {
    return InvalidArgument("device '{}' is none that PyTorch knows; use cpu, cuda, cuda:1 or xpu",
                           name);
  }
}

}  // namespace

Result<c10::Device> OpenDevice(std::string_view name) {
  PENSTOCK_TRY(const c10::Device device, Parse(name));
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  PENSTOCK_TRY_STATUS(Load(device.type(), name));
  const int count =
      HasGuard(device.type()) ? c10::impl::VirtualGuardImpl(device.type()).deviceCount() : 0;
  const int index = device.has_index() ? device.index() : 0;
  if (index < count) return c10::Device(device.type(), static_cast<c10::DeviceIndex>(index));
  return tl::unexpected(
      Error{ErrorCode::kUnavailable,
            fmt::format("device {}: PyTorch finds {} devices of this type on this machine", name,
                        count)});
}

std::optional<std::int64_t> FreeMemory(c10::Device device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) return std::nullopt;
  return static_cast<std::int64_t>(allocator->getMemoryInfo(device.index()).first);
}

at::Generator MakeGenerator(c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator();
  return at::globalContext()
      .getAcceleratorHooksInterface(device.type())
      .getNewGenerator(device.index());
}

}  // namespace penstock
