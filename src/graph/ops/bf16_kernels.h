// bf16 on processors without instructions for it, where libtorch's bf16 matmul is a scalar loop.
//
// While Bf16Kernels lives, every matmul and attention of bf16 tensors in the process is computed in
// fp32 on converted values and rounded to bf16 once, where bf16 would round. They take the place of
// ATen's own kernels, so autograd uses them too, and what a graph runs stays bitwise equal to it.
#pragma once

#include <memory>

namespace torch {
class Library;
}

namespace penstock {

// Threads: none may be calling an op while it is made or destroyed.
class Bf16Kernels {
 public:
  Bf16Kernels();
  ~Bf16Kernels();
  Bf16Kernels(const Bf16Kernels&) = delete;
  Bf16Kernels& operator=(const Bf16Kernels&) = delete;

 private:
  std::unique_ptr<torch::Library> library_;
};

// Whether this processor does (kernel/processor.h).
bool NeedsBf16Kernels();
// Makes them for the rest of the process where it does. Who links the capture has them from the
// start (capture.cpp), before any thread can call an op.
void InstallBf16Kernels();

}  // namespace penstock
