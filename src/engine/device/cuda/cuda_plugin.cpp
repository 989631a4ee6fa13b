#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "graph/device/device_graphs.h"
#include "graph/device/device_plugin.h"

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

// Returns a new stream on the part-th of `parts` groups of multiprocessors, which are as equal as
// the GPU allows and do not overlap. The stream lives as long as the process. Throws std::exception
// if the driver is older than CUDA 12.5 or the GPU cannot be divided so.
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

class CudaGraph final : public DeviceGraph {
 public:
  void Begin(at::MempoolId_t pool) {
    // Other threads allocate memory meanwhile, which the stricter modes forbid.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
  void End() { graph_.capture_end(); }
  void Replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaGraphPool final : public GraphPool {
 public:
  void Begin() override {
    auto graph = std::make_unique<CudaGraph>();
    graph->Begin(pool_);
    recorded_ = std::move(graph);
  }
  std::unique_ptr<DeviceGraph> End() override {
    std::unique_ptr<CudaGraph> graph = std::exchange(recorded_, nullptr);
    graph->End();
    return graph;
  }

 private:
  const at::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::unique_ptr<CudaGraph> recorded_;
};

// Records on the thread's stream, which must not be the default one.
std::unique_ptr<GraphPool> MakeCudaGraphPool() { return std::make_unique<CudaGraphPool>(); }

// As DevicePlugin::MakeBackend. Throws std::runtime_error if nccl.h was not there when the plugin
// was built.
#ifdef USE_C10D_NCCL
c10::intrusive_ptr<c10d::Backend> MakeCudaBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size) {
  // Messages are small next to the work of the ranks, which wait for them.
  const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}
#else
c10::intrusive_ptr<c10d::Backend> MakeCudaBackend(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                  int /*rank*/, int /*size*/) {
  throw std::runtime_error(
      "the plugin was built without NCCL: install nccl.h (pip install nvidia-nccl-cu13) and build "
      "it again");
}
#endif

class CudaPlugin final : public DevicePlugin {
 public:
  std::unique_ptr<GraphPool> MakeGraphPool(c10::Device) override { return MakeCudaGraphPool(); }
  c10::Stream MakePartStream(c10::Device device, int part, int parts) override {
    return MakeCudaPartStream(device, part, parts);
  }
  c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size) override {
    return MakeCudaBackend(store, rank, size);
  }
};

}  // namespace
}  // namespace penstock

extern "C" penstock::DevicePlugin* penstock_device_plugin_cuda() {
  static penstock::CudaPlugin plugin;
  return &plugin;
}
