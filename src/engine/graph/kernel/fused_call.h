// FusedCall: a fused kernel as a program calls it, on the CPU or on a CUDA device. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <string_view>

#include "graph/kernel/cuda_library.h"
#include "graph/kernel/library.h"

namespace penstock {

class FusedCall {
 public:
  // Loads the kernels with these texts for the device, with one run of the machine's compiler or of
  // NVRTC. Errors: as LoadKernels and LoadCudaKernels.
  static Status Load(std::span<const std::string> texts, c10::Device device);
  // Returns the kernel, false if it is not loaded for the device.
  static FusedCall Find(std::string_view text, c10::Device device);

  explicit operator bool() const { return on_cpu_ != nullptr || on_cuda_ != nullptr; }
  const Kernel& kernel() const { return on_cpu_ != nullptr ? on_cpu_->kernel : on_cuda_->kernel; }
  // Returns a tensor on the device for an output of this type.
  at::Tensor NewOutput(const TensorType& type) const;
  // Takes the addresses of the tensors' first elements. On a device, the kernel runs later, on the
  // thread's stream.
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs) const;

 private:
  c10::Device device_ = c10::kCPU;
  const LoadedKernel* on_cpu_ = nullptr;
  const CudaKernel* on_cuda_ = nullptr;
};

}  // namespace penstock
