// ShapesOnly: tensors without memory, so that a stage too large for this machine can be captured.
//
// While one lives, every op of the thread runs by its meta kernel, which finds shapes and touches
// no data, and what it makes are CPU tensors whose storage has a size and no bytes: the choices
// that ops make by device are those of a real run, and so is the graph. (PyTorch's FakeTensorMode
// does the same in Python.) Build the model, capture it and run the passes inside; what a value
// means is unknown, so nothing that reads data works: item() is refused by torch, and a graph made
// so cannot be run, nor are its ops fused. Ops without a meta kernel in libtorch have one in
// meta_kernels.cpp, or are refused. Threads: one at a time on a thread; each thread has its own.
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

  // The thread's, null where there is none.
  static ShapesOnly* Current();
  // Runs the op on the stack for its shapes.
  void Run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

 private:
  at::Tensor ToMeta(const at::Tensor& tensor);
  at::Tensor FromMeta(const at::Tensor& meta);
  c10::IValue ToMeta(const c10::IValue& value);
  c10::IValue FromMeta(const c10::IValue& value);

  c10::impl::IncludeDispatchKeyGuard include_;
  // Storages and their twins, both ways; both stay alive, so that addresses stay identities.
  std::unordered_map<const c10::StorageImpl*, c10::Storage> meta_of_, real_of_;
};

// Registers meta_kernels.cpp's (a linker leaves out what nobody calls).
void LinkMetaKernels();

// Runs an op's kernel below capture: for its shapes alone where the thread has a ShapesOnly.
void RunKernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace penstock
