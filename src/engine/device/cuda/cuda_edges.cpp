#include "device/cuda/cuda_edges.h"

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <stdexcept>
#endif

namespace penstock {

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

}  // namespace penstock
