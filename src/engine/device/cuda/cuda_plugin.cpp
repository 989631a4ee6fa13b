#include "device/cuda/cuda_edges.h"
#include "device/cuda/cuda_graph_pool.h"
#include "device/cuda/cuda_parts.h"
#include "graph/device/device_plugin.h"

namespace penstock {
namespace {

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
