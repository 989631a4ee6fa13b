// ForeignScope: what a capture knows about tensors that the stage reads but does not own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace penstock {

// While it exists, captures of its thread ask `refusal` about each tensor that is neither computed
// by the stage nor one of its inputs, parameters and buffers. It returns the line that refuses the
// tensor, because something else trains it, or an empty string if the tensor may be a constant.
// Without a scope, only tensors that require a gradient are refused.
// Threads: at most one per thread at a time.
class ForeignScope {
 public:
  using Refusal = std::function<std::string(const at::Tensor&)>;

  explicit ForeignScope(Refusal refusal);
  ~ForeignScope();
  ForeignScope(const ForeignScope&) = delete;
  ForeignScope& operator=(const ForeignScope&) = delete;

  // Returns the line for the tensor, or an empty string.
  static std::string RefusalOf(const at::Tensor& tensor);

 private:
  Refusal refusal_;
};

}  // namespace penstock
