// What updates a stage's parameters: an optimizer written in Python, or AdamW without Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bindings/engine/python_stage.h"
#include "train/stage/torch_stage.h"

namespace penstock::python {

// Calls function(gradients), a list in the order of `names` of tensors, and of None for parameters
// that no output depends on. Holds the GIL meanwhile. Gradients of parameters that are not in
// `names` are ignored.
TorchStage::Update CallPython(nb::callable function, std::vector<std::string> names);

struct AdamSettings {
  double lr, beta1, beta2, eps, weight_decay;
};

// One group of torch.optim.AdamW: its settings, and its tensors in one order.
struct AdamGroup {
  // By step of the run. The settings of the last step hold until others follow.
  std::vector<AdamSettings> settings = {};
  std::vector<std::string> names;
  std::vector<at::Tensor> values, first_moments, second_moments;
  std::vector<at::Tensor> steps;          // fp32 scalars on the device of the values
  std::vector<std::size_t> indices = {};  // among the stage's parameters; empty before an update
};

// AdamW on the state of a torch.optim.AdamW, by ATen's fused kernel and without the GIL. Skips
// parameters that no output depends on, as torch does.
// Threads: groups and settings change only between runs of the pipeline.
class FusedAdamW {
 public:
  void AddGroup(AdamGroup group) { groups_.push_back(std::move(group)); }
  void Clear() { groups_.clear(); }
  // Forgets the settings so far. Add sets them for each step of the next run.
  void BeginRun();
  void Add(std::size_t group, const AdamSettings& settings) {
    groups_.at(group).settings.push_back(settings);
  }
  // Begins the updates of the next step.
  void EndStep() { ++step_; }
  void Update(const std::vector<NamedParameter>& parameters);

 private:
  std::vector<AdamGroup> groups_;
  std::size_t step_ = 0;  // of the run
  // The tensors of the group that is updated. Kept, so that updates allocate no memory.
  std::vector<at::Tensor> gradients_, values_, first_moments_, second_moments_, steps_;
};

}  // namespace penstock::python
