#include "device/cuda/cuda_parts.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <vector>

namespace penstock {
namespace {

// The driver's functions, which are looked up because no library of PyTorch has them.
struct Driver {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetDevResource) get_resource;
  decltype(&cuDevSmResourceSplitByCount) split;
  decltype(&cuDevResourceGenerateDesc) describe;
  decltype(&cuGreenCtxCreate) create;
  decltype(&cuGreenCtxStreamCreate) create_stream;
};

template <class Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK(function != nullptr, "the CUDA driver has no ", name);
}

const Driver& TheDriver() {
  static const Driver driver = [] {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(library != nullptr, dlerror());
    Driver found{};
    Find(library, "cuDeviceGet", found.device_get);
    Find(library, "cuDeviceGetDevResource", found.get_resource);
    Find(library, "cuDevSmResourceSplitByCount", found.split);
    Find(library, "cuDevResourceGenerateDesc", found.describe);
    Find(library, "cuGreenCtxCreate", found.create);
    Find(library, "cuGreenCtxStreamCreate", found.create_stream);
    return found;
  }();
  return driver;
}

void Check(CUresult result, const char* what) {
  TORCH_CHECK(result == CUDA_SUCCESS, "CUDA cannot ", what, ": error ", static_cast<int>(result));
}

// The driver rounds the size of a group up to a multiple of this (CUDA driver API, green contexts).
constexpr unsigned kGroup = 8;

// Returns the part-th group of the device's multiprocessors. The last group has the rest of them,
// so the others are rounded down.
CUdevResource PartOf(CUdevice device, unsigned part, unsigned parts) {
  const Driver& driver = TheDriver();
  CUdevResource all{}, rest{};
  Check(driver.get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "tell the multiprocessors");
  if (parts == 1) return all;
  std::vector<CUdevResource> groups(parts - 1);
  unsigned count = parts - 1;
  const unsigned size = std::max(kGroup, all.sm.smCount / parts / kGroup * kGroup);
  Check(driver.split(groups.data(), &count, &all, &rest, 0, size), "divide the multiprocessors");
  TORCH_CHECK(count == parts - 1 && rest.sm.smCount > 0, "the GPU has too few multiprocessors for ",
              parts, " ranks");
  return part < count ? groups[part] : rest;
}

}  // namespace

c10::Stream MakeCudaPartStream(c10::Device device, int part, int parts) {
  const Driver& driver = TheDriver();
  CUdevice number = 0;
  Check(driver.device_get(&number, device.index()), "find the device");
  CUdevResource resource =
      PartOf(number, static_cast<unsigned>(part), static_cast<unsigned>(parts));
  CUdevResourceDesc description = nullptr;
  Check(driver.describe(&description, &resource, 1), "describe a part of the GPU");
  CUgreenCtx context = nullptr;
  Check(driver.create(&context, description, number, CU_GREEN_CTX_DEFAULT_STREAM),
        "create a green context");
  CUstream stream = nullptr;
  Check(driver.create_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0), "create a stream");
  return c10::cuda::getStreamFromExternal(stream, device.index()).unwrap();
}

}  // namespace penstock
