// AdamW, one instance per stage, and the learning rate over a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Linear warmup to the peak, then a cosine decay to the final rate at the last step.
struct LearningRate {
  OptimizerConfig config;
  std::int64_t steps = 1;  // of the run

  double At(std::int64_t step) const;
};

// Returns the squared norm of all gradients that count in it. Throws std::runtime_error, naming the
// parameter, if one is not finite.
double FiniteSquaredNorm(const UpdateRule& rule, const std::vector<NamedParameter>& parameters);

// The optimizer state of one parameter, or of a range of its elements. The tensors are the
// optimizer's own.
struct AdamState {
  std::string parameter;
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t begin = 0;           // the first element
  at::Tensor first_moment;
  at::Tensor second_moment;
  at::Tensor steps;  // a scalar
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2), using ATen's fused kernel. Decays only matrices.
// Updates after the first allocate nothing.
// Shares the rate with its creator, who may change it only while no thread runs an update.
class AdamW {
 public:
  // All `updates_per_step` updates of a step use the learning rate of the step.
  explicit AdamW(std::shared_ptr<const LearningRate> rate, int updates_per_step = 1)
      : rate_(std::move(rate)), updates_per_step_(updates_per_step) {}

  // Updates the parameters from the gradients, which do not change. Requires the same parameters in
  // every call.
  void Update(const std::vector<NamedParameter>& parameters);

  // Creates the state, which is zero, unless it exists. The first update calls it too.
  void MakeState(const std::vector<NamedParameter>& parameters);
  // Returns an empty vector before the state is created.
  std::vector<AdamState> States() const;
  // Skips an update. The learning rate still follows the steps of the run, so that it reaches its
  // end; the moments and their update counts do not change.
  void Skip() { ++step_; }

  // Records the squared norm of an update's gradients. Take returns the mean of those recorded
  // since its last call (a single one if a step makes one update), or 0 if there are none.
  void RecordSquaredNorm(double squared);
  double TakeMeanSquaredNorm();

  // Continues after the first `step` steps of the run. Requires: States() have the values after
  // them.
  void ResumeAfter(std::int64_t step);

  // Save copies parameters and state, which takes three times the memory of the parameters. Restore
  // restores the last copy bit for bit.
  void Save(const std::vector<NamedParameter>& parameters);
  void Restore();

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<AdamState> about;  // without tensors
    std::vector<at::Tensor> values, gradients, first_moments, second_moments, steps;
  };

  // The tensors that an update changes.
  std::vector<at::Tensor> Changed() const;

  std::shared_ptr<const LearningRate> rate_;
  int updates_per_step_;
  std::int64_t step_ = 0;     // updates so far, including skipped ones
  double squared_norms_ = 0;  // sum of the recorded norms
  int recorded_norms_ = 0;
  std::vector<at::Tensor> saved_;
  std::int64_t saved_step_ = 0;
  std::vector<Group> groups_;  // empty before the state is created
};

}  // namespace penstock
