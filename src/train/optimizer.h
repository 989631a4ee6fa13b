// AdamW, one instance a stage, and the learning rate over a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "train/config.h"
#include "train/torch_stage.h"

namespace penstock {

// Linear warm-up to the peak, then a cosine down to its end at the last step.
struct LearningRate {
  OptimizerConfig config;
  std::int64_t steps = 1;  // of the run

  double At(std::int64_t step) const;
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2) by ATen's fused kernel. Decays matrices only.
// Its state is made at the first update; later updates allocate nothing.
// Ownership: keeps the rate, which may be changed between updates of no thread.
class AdamW {
 public:
  explicit AdamW(std::shared_ptr<const LearningRate> rate) : rate_(std::move(rate)) {}

  // One step from the gradients, which stay as they are. The same parameters at every call.
  void Update(const std::vector<NamedParameter>& parameters);

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<at::Tensor> values, gradients, first_moments, second_moments, steps;
  };

  void Initialize(const std::vector<NamedParameter>& parameters);

  std::shared_ptr<const LearningRate> rate_;
  std::int64_t step_ = 0;
  std::vector<Group> groups_;  // empty before the first update
};

}  // namespace penstock
