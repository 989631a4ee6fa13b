// What updates a stage's parameters: an optimizer written in Python, or AdamW without Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bindings/engine/python_stage.h"
#include "train/stage/torch_stage.h"

namespace penstock::python {

// Calls function(gradients), a list of tensors in the order of `names`. Holds the GIL meanwhile.
// Gradients of parameters that are not in `names` are ignored.
TorchStage::Update CallPython(nb::callable function, std::vector<std::string> names);

// One group of torch.optim.AdamW: its settings, and its tensors in one order.
struct AdamGroup {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> values, first_moments, second_moments, steps;
  std::vector<at::Tensor> gradients = {};  // of the last update
};

// AdamW on the state of a torch.optim.AdamW, by ATen's fused kernel and without the GIL.
// Threads: settings change only between steps.
class FusedAdamW {
 public:
  void AddGroup(AdamGroup group) { groups_.push_back(std::move(group)); }
  void Clear() { groups_.clear(); }
  void Set(std::size_t group, double lr, double beta1, double beta2, double eps,
           double weight_decay);
  void Update(const std::vector<NamedParameter>& parameters);

 private:
  std::vector<AdamGroup> groups_;
};

}  // namespace penstock::python
