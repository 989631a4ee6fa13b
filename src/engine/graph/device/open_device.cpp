#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/text/numbers.h"
#include "graph/device/device_queue.h"

namespace penstock {
namespace {

// PyTorch's libraries that may register a type of device, so that the program need not link them.
std::vector<const char*> LibrariesOf(c10::DeviceType type) {
  switch (type) {
    case c10::DeviceType::CUDA:
      return {"libtorch_cuda.so", "libtorch_hip.so"};  // AMD's devices have CUDA's name
    case c10::DeviceType::XPU:
      return {"libtorch_xpu.so"};
    default:
      return {};
  }
}

bool HasGuard(c10::DeviceType type) { return c10::impl::hasDeviceGuardImpl(type); }

// What the loader says of a library that torch does not have, and of one whose own libraries are
// missing: "libtorch_cuda.so: cannot open shared object file", "libcufile.so.0: cannot ...".
Error NoLibrary(std::string_view name, std::string_view library, std::string_view reason) {
  const std::string_view missing = reason.substr(0, reason.find(':'));
  std::string what = fmt::format("torch's library for it cannot be loaded ({})", reason);
  if (missing == library) {
    what = fmt::format("this torch is a build for the CPU, without {}", library);
  } else if (reason.find("cannot open shared object file") != std::string_view::npos) {
    what =
        fmt::format("only the CPU part of this torch is installed, as ./run does: its {} needs {}",
                    library, missing);
  }
  return {ErrorCode::kUnavailable,
          fmt::format("device {}: {}; docs/devices.md says how to install a torch for this device",
                      name, what)};
}

Status Load(c10::DeviceType type, std::string_view name) {
  std::optional<Error> first;
  for (const char* const library : LibrariesOf(type)) {
    if (HasGuard(type) || dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
    Error error = NoLibrary(name, library, dlerror());
    if (!first) first = std::move(error);
  }
  return first ? Status(tl::unexpected(*std::move(first))) : Status();
}

// Returns the number of this process among the processes of its machine, as launchers set it.
int NumberOnMachine() {
  for (const char* const name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    const Result<int> number = ParseInt(text);
    if (number && *number >= 0) return *number;
  }
  return 0;
}

Result<c10::Device> Parse(std::string_view name) {
  std::optional<c10::Device> device;
  try {
    device.emplace(std::string(name));
  } catch (const c10::Error&) {  // no device has this name
  }
  // A number that is too large becomes another one.
  if (device && device->str() == name && !device->is_meta()) return *device;
  return InvalidArgument("device '{}' is none that PyTorch knows; use cpu, cuda, cuda:1 or xpu",
                         name);
}

// Returns null if the device's allocator has no statistics.
c10::DeviceAllocator* AllocatorOf(c10::Device device) {
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

}  // namespace

Result<c10::Device> OpenDevice(std::string_view name) {
  PENSTOCK_TRY(const c10::Device device, Parse(name));
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  PENSTOCK_TRY_STATUS(Load(device.type(), name));
  const int count =
      HasGuard(device.type()) ? c10::impl::VirtualGuardImpl(device.type()).deviceCount() : 0;
  const int index = device.has_index() ? device.index() : NumberOnMachine() % std::max(1, count);
  if (index < count) return c10::Device(device.type(), static_cast<c10::DeviceIndex>(index));
  return MakeError(ErrorCode::kUnavailable,
                   "device {}: PyTorch finds {} devices of this type on this machine", name, count);
}

int DevicesLike(c10::Device device) {
  return device.is_cpu() ? 1 : c10::impl::VirtualGuardImpl(device.type()).deviceCount();
}

std::optional<std::int64_t> PeakMemory(c10::Device device) {
  c10::DeviceAllocator* const allocator = AllocatorOf(device);
  if (allocator == nullptr) return std::nullopt;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device.index()).allocated_bytes[kAll].peak;
}

std::optional<std::int64_t> FreeMemory(c10::Device device) {
  c10::DeviceAllocator* const allocator = AllocatorOf(device);
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
