// ShapesOnly: tensors without memory, for capturing stages that are too large for this machine.
//
// While a ShapesOnly exists, every op of its thread runs the meta kernel, which computes shapes and
// touches no data. The results are CPU tensors whose storage has a size but no bytes. Ops dispatch
// by device as in a real run, so the graph is the same. (PyTorch's FakeTensorMode does the same in
// Python.) Build the model, capture it and run the passes within its scope. Values are unknown:
// item() throws, and the resulting graph can neither be run nor fused. An op without a meta kernel
// in libtorch or meta_kernels.cpp throws.
// Threads: at most one per thread at a time.
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
  // Replaces the arguments on the stack by results that have shapes only.
  void Run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

 private:
  at::Tensor ToMeta(const at::Tensor& tensor);
  at::Tensor FromMeta(const at::Tensor& meta);
  c10::IValue ToMeta(const c10::IValue& value);
  c10::IValue FromMeta(const c10::IValue& value);

  c10::impl::IncludeDispatchKeyGuard include_;
  // Real and meta storages in both directions. Both stay alive, so that addresses identify them.
  std::unordered_map<const c10::StorageImpl*, c10::Storage> meta_of_, real_of_;
};

// Makes the linker keep the registrations of meta_kernels.cpp.
void LinkMetaKernels();

// Runs the kernel of an op below capture, or its meta kernel if the thread has a ShapesOnly.
void RunKernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace penstock
