// Kernels for bf16 on processors without bf16 instructions, where libtorch's bf16 matmul is a
// scalar loop.
//
// While a Bf16Kernels exists, all matmuls and attention of bf16 tensors in the process are computed
// in fp32, and each result is rounded to bf16 once. The kernels replace ATen's, so autograd also
// uses them, and graphs stay bitwise equal to autograd.
#pragma once

#include <memory>

namespace torch {
class Library;
}

namespace penstock {

// Threads: no thread may call an op while this is constructed or destroyed.
class Bf16Kernels {
 public:
  Bf16Kernels();
  ~Bf16Kernels();
  Bf16Kernels(const Bf16Kernels&) = delete;
  Bf16Kernels& operator=(const Bf16Kernels&) = delete;

 private:
  std::unique_ptr<torch::Library> library_;
};

// Returns whether this processor needs them (kernel/processor.h).
bool NeedsBf16Kernels();
// Installs them until the end of the process if the processor needs them. Programs that link
// capture.cpp call this during static initialization, before any thread calls an op.
void InstallBf16Kernels();

}  // namespace penstock
