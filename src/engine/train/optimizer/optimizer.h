// The optimizer, one instance per stage, and the learning rate over a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/parameter_rules.h"
#include "config/train_config.h"
#include "train/optimizer/matrix_exchange.h"
#include "train/optimizer/muon.h"
#include "train/stage/torch_stage.h"

namespace penstock {

class GroupEnd;

// Linear warmup to the peak, then a cosine decay to the final rate at the last step.
struct LearningRate {
  OptimizerConfig config;
  std::int64_t steps = 1;  // of the run

  double At(std::int64_t step) const;
};

// Returns the squared norm of all gradients that count in it, by shard; of parts of matrices, the
// sum over the ranks of the tensor group. Throws std::runtime_error, naming the parameter, if one
// is not finite.
std::vector<double> FiniteSquaredNorms(const UpdateRule& rule,
                                       const std::vector<NamedParameter>& parameters,
                                       GroupEnd* tensor = nullptr);

// The kind of the moving averages of the weights.
inline constexpr std::string_view kAverageKind = "ema";

// A tensor of the optimizer's state: of one parameter, or of a part of it. It shares the
// optimizer's memory.
struct OptimizerTensor {
  std::string kind;  // "first_moment"
  std::string parameter;
  Layout layout;
  at::Tensor values;
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2), using ATen's fused kernel, and Muon (Jordan et
// al. 2024), with settings by parameter (ParameterRules), and the exponential moving average of the
// weights. Updates after the first allocate nothing.
// Shares the rate with its creator, who may change it only while no thread runs an update.
class Optimizer {
 public:
  // All `updates_per_step` updates of a step use the learning rate of the step. `exchange` is for
  // parameters in shards, and `tensor` for parts of matrices (NamedParameter::part); null if there
  // are none.
  explicit Optimizer(std::shared_ptr<const LearningRate> rate, int updates_per_step = 1,
                     std::unique_ptr<MatrixExchange> exchange = nullptr,
                     GroupEnd* tensor = nullptr);
  ~Optimizer();

  // Updates the parameters from the gradients, which do not change. Requires the same parameters in
  // every call. With an exchange or a tensor group, called on all of their ranks; throws
  // std::runtime_error if the run is aborted.
  void Update(const std::vector<NamedParameter>& parameters);

  // Creates the state, which is zero, unless it exists. The first update calls it too.
  void MakeState(const std::vector<NamedParameter>& parameters);
  // Returns an empty vector before the state is created.
  std::vector<OptimizerTensor> States() const;
  // Returns the bytes of the state and of the memory for updates.
  std::int64_t Bytes() const;
  // Skips an update. The learning rate still follows the steps of the run, so that it reaches its
  // end; the moments and their update counts do not change.
  void Skip();

  // Records the squared norms of an update's gradients, by shard. Take returns the mean of those
  // recorded since its last call (a single one if a step makes one update), or a 0 if there are
  // none.
  void RecordSquaredNorms(std::span<const double> by_shard);
  std::vector<double> TakeMeanSquaredNorms();

  // Continues after the first `step` steps of the run. Requires: States() have the values after
  // them. `has_averages`: also the averages of the weights, which otherwise start at the weights.
  void ResumeAfter(std::int64_t step, bool has_averages = true);

  // Save copies parameters and state, which takes as much memory as both. Restore restores the last
  // copy bit for bit.
  void Save(const std::vector<NamedParameter>& parameters);
  void Restore();

 private:
  struct About {
    std::string name;
    Layout layout;
  };
  // Parameters with the same rule.
  struct AdamGroup {
    ParameterRule rule;
    std::vector<About> about;
    std::vector<at::Tensor> values, gradients, first_moments, second_moments, steps;
  };
  // The value is a range of the rank's part of the parameter, or of all of it, and starts at
  // element `first`. `size` is the size of the part's matrices.
  struct MuonParameter {
    ParameterRule rule;
    About about;
    std::optional<ParameterPart> part;
    Matrices size;
    std::int64_t first;
    at::Tensor value, gradient, momentum;  // flat
  };
  struct Average {
    About about;
    at::Tensor value, average;
  };
  // A part of a matrix that a parameter has: all of it, or a divided one.
  struct MatrixPart {
    std::int64_t matrix, begin, size;  // in elements; `begin` in the own range
  };

  AdamGroup& GroupOf(const ParameterRule& rule);
  static std::vector<MatrixPart> PartsOf(const MuonParameter& parameter);
  void UpdateAdam(double lr);
  void UpdateInParts(const AdamGroup& group, double lr);
  void UpdateMuon(double lr);
  void UpdateBiases();
  void UpdateMatrix(const MuonParameter& parameter, const MatrixPart& part, double lr);
  // Writes the direction of a matrix, or of the rank's part of it, to `to`.
  void SetDirection(const MuonParameter& parameter, const MatrixPart& part, const at::Tensor& to);
  // Returns the orthogonalized direction of the same elements, flat.
  at::Tensor Orthogonalized(const MuonParameter& parameter, const MatrixPart& part);
  void StartAverages();
  // The tensors that an update changes.
  std::vector<at::Tensor> Changed() const;

  std::shared_ptr<const LearningRate> rate_;
  ParameterRules rules_;
  int updates_per_step_;
  std::int64_t step_ = 0;              // updates so far, including skipped ones
  std::vector<double> squared_norms_;  // sums of the recorded norms, by shard
  int recorded_norms_ = 0;
  std::vector<at::Tensor> saved_;
  std::int64_t saved_step_ = 0;
  bool has_state_ = false;
  std::vector<AdamGroup> groups_;
  std::vector<MuonParameter> matrices_;
  std::vector<std::pair<at::Tensor, at::Tensor>> biases_;  // of routers: value and gradient
  at::Tensor wide_;                                        // a part of a bf16 gradient in fp32
  Orthogonalizer orthogonalizer_;
  std::unique_ptr<MatrixExchange> exchange_;
  GroupEnd* tensor_;
  std::vector<Average> averages_;  // empty without
  bool averages_started_ = false;
};

}  // namespace penstock
