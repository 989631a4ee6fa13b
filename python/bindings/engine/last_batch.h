// LastBatch: what a step has in common with the last one, so that its batch needs no checks.
// Threads: one at a time, which holds the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/engine/python_stage.h"
#include "bindings/engine/watch.h"

namespace penstock::python {

// Inputs and targets of a step: tensors of the whole batch.
using Batch = std::pair<Tensors, Tensors>;

class LastBatch {
 public:
  // `device` is the first rank's.
  explicit LastBatch(c10::Device device) : device_(device) {}

  void Remember(const Batch& batch);
  // Sets what must be unchanged for a step to be like the last one.
  void SetWatches(std::vector<std::shared_ptr<Watch>> watches) { watches_ = std::move(watches); }

  // Whether these are single tensors (or no targets) of the same shapes and kinds as in the last
  // step, under the same autocast.
  bool Fits(const nb::object& inputs, const nb::object& targets) const;
  // Whether all batches have tensors of the shapes and kinds of the last step's.
  bool AllFit(const std::vector<Batch>& batches) const;
  // Returns whether nothing else changed either, so that the last step's checks, and what
  // optimizers were told, still hold.
  bool IsLike(const nb::object& inputs, const nb::object& targets) const;

 private:
  // What Python checks of a tensor of a batch.
  struct TensorKind {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
    at::Layout layout;
    bool is_inference, requires_grad;

    explicit TensorKind(const at::Tensor& tensor);
    bool Fits(const at::Tensor& tensor) const;
  };
  using Autocast = std::pair<bool, at::ScalarType>;

  Autocast AutocastOfThread() const;

  c10::Device device_;
  std::vector<TensorKind> kinds_;  // of inputs and targets
  Autocast autocast_;
  std::vector<std::shared_ptr<Watch>> watches_;
};

}  // namespace penstock::python
