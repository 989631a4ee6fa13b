// ForeignScope: what a capture knows about tensors that the stage reads but does not own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace penstock {

struct ForeignTensor {
  // The line that refuses the tensor, because something else trains it; empty if it may be read.
  std::string refusal;
  // Whether each run reads the tensor's current values. Otherwise it is a constant.
  bool is_followed = false;
};

// While it exists, captures of its thread ask `judge` about each tensor that is neither computed by
// the stage nor one of its inputs, parameters and buffers. Without a scope, tensors that require a
// gradient are refused, and all others are constants.
// Threads: at most one per thread at a time.
class ForeignScope {
 public:
  using Judge = std::function<ForeignTensor(const at::Tensor&)>;

  explicit ForeignScope(Judge judge);
  ~ForeignScope();
  ForeignScope(const ForeignScope&) = delete;
  ForeignScope& operator=(const ForeignScope&) = delete;

  static ForeignTensor JudgementOf(const at::Tensor& tensor);

 private:
  Judge judge_;
};

}  // namespace penstock
