// AdamW, one instance a stage, and the learning rate over a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Linear warm-up to the peak, then a cosine down to its end at the last step.
struct LearningRate {
  OptimizerConfig config;
  std::int64_t steps = 1;  // of the run

  double At(std::int64_t step) const;
};

// The squared norm of all gradients that count in it. Throws std::runtime_error, naming a
// parameter, where one is not finite.
double FiniteSquaredNorm(const std::vector<NamedParameter>& parameters);

// What is kept of one parameter; the tensors are the optimizer's own.
struct AdamState {
  std::string parameter;
  at::Tensor first_moment;
  at::Tensor second_moment;
  at::Tensor steps;  // one number
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2) by ATen's fused kernel. Decays matrices only.
// Updates behind the first allocate nothing.
// Ownership: keeps the rate, which may be changed between updates of no thread.
class AdamW {
 public:
  // The rate is that of a step, which makes `updates_a_step` updates.
  explicit AdamW(std::shared_ptr<const LearningRate> rate, int updates_a_step = 1)
      : rate_(std::move(rate)), updates_a_step_(updates_a_step) {}

  // One step from the gradients, which stay as they are. The same parameters at every call.
  void Update(const std::vector<NamedParameter>& parameters);

  // Makes the state, all zero, where there is none yet; the first update does the same.
  void MakeState(const std::vector<NamedParameter>& parameters);
  // Empty before the state is made.
  std::vector<AdamState> States() const;
  // The step is skipped: the learning rate follows the run's steps all the same, so that it reaches
  // its end; moments and their count of updates stay.
  void Skip() { ++step_; }

  // Notes the norm of an update's gradients, and returns the mean square of those since the last
  // call: the only one where a step makes one update. 0 where none was noted.
  void NoteSquaredNorm(double squared);
  double TakeMeanSquaredNorm();

  // Continues after the run's first `step` steps. Requires: States() are as they were then.
  void GoOnBehind(std::int64_t step);

  // Keeps parameters and state as they are (three times the parameters' memory), and puts what was
  // kept last back, to the last bit.
  void Save(const std::vector<NamedParameter>& parameters);
  void Restore();

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> values, gradients, first_moments, second_moments, steps;
  };

  // What an update changes, beside step_.
  std::vector<at::Tensor> Changed() const;

  std::shared_ptr<const LearningRate> rate_;
  int updates_a_step_;
  std::int64_t step_ = 0;     // updates so far, made or skipped
  double squared_norms_ = 0;  // sum of those noted, and how many
  int noted_norms_ = 0;
  std::vector<at::Tensor> saved_;
  std::int64_t saved_step_ = 0;
  std::vector<Group> groups_;  // empty before the state is made
};

}  // namespace penstock
