#include "device/cuda/cuda_graph_pool.h"

#include <ATen/cuda/CUDAGraph.h>

#include <utility>

namespace penstock {
namespace {

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

}  // namespace

std::unique_ptr<GraphPool> MakeCudaGraphPool() { return std::make_unique<CudaGraphPool>(); }

}  // namespace penstock
