// ShapesOnly: tensors without memory, for capturing stages that are too large for this machine.
//
// While a ShapesOnly exists, every op of the thread runs its meta kernel, which computes shapes and
// touches no data. The results are CPU tensors whose storage has a size but no bytes: ops choose by
// device as in a real run, so the graph is the same. (PyTorch's FakeTensorMode does the same in
// Python.) Build the model, capture it and run the passes inside. Values are unknown, so nothing
// that reads data works: torch rejects item(), and the resulting graph can neither be run nor have
// its ops fused. Ops without a meta kernel in libtorch have one in meta_kernels.cpp or are
// rejected.
// Threads: at most one at a time per thread; each thread has its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <unordered_map>

namespace penstock {

class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  // Returns the thread's instance, or null.
  static ShapesOnly* Current();
  // Runs the op on the stack for its shapes only.
  void Run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

 private:
  at::Tensor ToMeta(const at::Tensor& tensor);
  at::Tensor FromMeta(const at::Tensor& meta);
  c10::IValue ToMeta(const c10::IValue& value);
  c10::IValue FromMeta(const c10::IValue& value);

  c10::impl::IncludeDispatchKeyGuard include_;
  // Real and meta storages, in both directions. Both stay alive, so that addresses identify them.
  std::unordered_map<const c10::StorageImpl*, c10::Storage> meta_of_, real_of_;
};

// Forces the registrations of meta_kernels.cpp to be linked.
void LinkMetaKernels();

// Runs the kernel of an op below capture, for its shapes only if the thread has a ShapesOnly.
void RunKernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace penstock
