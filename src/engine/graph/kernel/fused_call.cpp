#include "graph/kernel/fused_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>

namespace penstock {

Status FusedCall::Load(std::span<const std::string> texts, c10::Device device) {
  return device.is_cpu() ? LoadKernels(texts) : LoadCudaKernels(texts, device);
}

FusedCall FusedCall::Find(std::string_view text, c10::Device device) {
  FusedCall call;
  call.device_ = device;
  if (device.is_cpu()) {
    call.on_cpu_ = FindKernel(text);
  } else {
    call.on_cuda_ = FindCudaKernel(text, device);
  }
  return call;
}

at::Tensor FusedCall::NewOutput(const TensorType& type) const {
  // Below the dispatcher, which takes longer than small kernels.
  if (on_cpu_ != nullptr) {
    return at::Tensor(at::detail::empty_strided_cpu(type.sizes, type.strides, type.dtype));
  }
  return at::empty_strided(type.sizes, type.strides, at::device(device_).dtype(type.dtype));
}

void FusedCall::Run(std::span<const void* const> inputs, std::span<void* const> outputs) const {
  if (on_cpu_ != nullptr) {
    RunKernelFunction(*on_cpu_, inputs.data(), outputs.data());
  } else {
    RunCudaKernel(*on_cuda_, device_, inputs, outputs);
  }
}

}  // namespace penstock
