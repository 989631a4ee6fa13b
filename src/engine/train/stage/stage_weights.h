// StageWeights: the parameters of a stage and what an update does to them: it computes norms, calls
// the optimizer, and exchanges gradients and shards with other stages. Private to train/. Threads:
// used by its stage's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/capture/capture.h"
#include "runtime/message.h"
#include "train/shards/expert_gather.h"
#include "train/shards/shard_collectives.h"
#include "train/shards/shards.h"
#include "train/stage/torch_stage.h"
#include "train/weights/gradient_memory.h"
#include "train/weights/plane_sums.h"
#include "train/weights/replica_division.h"
#include "train/weights/replica_sums.h"
#include "train/weights/shared_sums.h"
#include "train/weights/step_losses.h"
#include "train/weights/weight_versions.h"

namespace penstock {

class StageWeights final : public StageUpdate {
 public:
  // The stage computes with `working` and trains `masters`, which are the same tensors or casts of
  // each other. `losses` are sent to replicas after the gradients, and must outlive the object.
  StageWeights(std::span<const NamedTensor> working, std::span<const NamedTensor> masters,
               const StageProgram& program, const TorchStageOptions& options,
               const StepLosses& losses);
  StageWeights(const StageWeights&) = delete;
  StageWeights& operator=(const StageWeights&) = delete;

  // The tensors that graphs are bound to: the weights of the version in use, and the gradients.
  const std::vector<at::Tensor>& values() const { return versions_.in_use(); }
  const std::vector<at::Tensor>& gradients() const { return gradients_.tensors(); }
  // What the stage updates: all of its parameters, or the parts in its shard and those in no shard.
  std::vector<NamedParameter>& parameters() { return updated_; }
  // What a checkpoint must set before the first step; then call SetWorking().
  std::vector<NamedParameter> Restored() const;
  WeightVersions& versions() { return versions_; }
  const WeightVersions& versions() const { return versions_; }

  // Declares that the stage runs another program, too. See NamedParameter::has_gradient.
  void AddProgram(const StageProgram& program);
  // Copies the masters to the working tensors.
  void SetWorking();
  // As in TorchStage.
  void SetWeights(std::span<const at::Tensor> whole);

  // As in Stage.
  void Step(const TorchStage::Update& update);
  void TryStep(const TorchStage::Update& update);
  // Drops the gradients of a step that has failed before its update, also other stages'.
  void Forget();

  void CommitStep() override { Clear(); }
  void RollBackStep() override;
  void ScaleGradients(double factor) override { gradients_.flat().mul_(factor); }
  void DropGradients() override { dropped_ = true; }
  // By parameter, also for parameters that it does not update.
  std::span<const double> SquaredNorms() override;
  std::string ParameterName(std::size_t index) const override { return parameters_[index].name; }
  Message ShareParameter(int parameter) override;
  void TakeParameter(int parameter, int holder, Message gradient) override {
    shared_.Take(parameter, holder, std::move(gradient));
  }
  void AddParameter(int parameter) override { shared_.Sum(parameter); }
  Message ShareGradients(int to_chain) override;
  void TakeGradients(int chain, Message gradients) override {
    sums_.Take(chain, std::move(gradients));
  }
  void AddGradients() override { sums_.Sum(); }
  Message ShareShard() override;
  void TakeShard(int chain, Message parameters) override;

  // The collectives of the replicas; null without any.
  ShardCollectives* collectives() { return collectives_ ? &*collectives_ : nullptr; }
  // The rank's groups for collectives of graphs, by number.
  std::vector<std::pair<int, GroupEnd*>> groups() const;
  // REDUCE_GRAD.
  void StartReduction();

  // As in TorchStage.
  void StartGather();
  void FinishGather(bool keep);
  void DropGathered();
  const std::vector<NamedTensor>& AllExperts() const { return all_experts_; }

  // Returns the losses of another chain. Valid after AddGradients().
  std::span<const float> LossesOf(int chain) const { return sums_.LossesOf(chain); }

 private:
  void Describe(std::span<const NamedTensor> masters, const TorchStageOptions& options);
  void AddShared(const TorchStageOptions& options);
  void MakeCollectives(const StageProgram& program, const TorchStageOptions& options);
  void ChooseUpdated(const TorchStageOptions& options);
  // Whether this replica's norm of a parameter in no shard counts.
  bool CountsUnsharded(std::size_t parameter) const;
  bool has_master_shard() const { return collectives_ && collectives_->masters().defined(); }
  // The masters of a piece of the own shard. Requires: has_master_shard().
  at::Tensor MasterOf(const Shards::ParameterPiece& piece) const {
    return collectives_->masters().narrow(0, shards_.InShard(piece), piece.size());
  }
  std::int64_t WeightBytes() const;  // held all the time
  // What replicas send each other of a piece, and its type.
  at::Tensor Sent(const Shards::ParameterPiece& piece) const;
  at::ScalarType SentType() const;
  // Adds what other planes have computed of the gradients, once per update: of parts that several
  // ranks of the tensor group have, then of other tokens.
  void AddPlanes();
  // In one exchange.
  void AddCopies();
  void AddContext();
  void AddNormsOfParts();
  void Update(const TorchStage::Update& update);
  void Clear();

  const bool cast_;
  const OptimizerHooks optimizer_;
  const ReplicaDivision division_;
  const Shards shards_;
  WeightVersions versions_;
  GradientMemory gradients_;
  SharedSums shared_;
  PlaneSums planes_;
  ReplicaSums sums_;
  std::shared_ptr<RankShards> rank_;
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> updated_;
  // The parts of which other ranks of the tensor group have copies, by parameter.
  std::vector<std::pair<std::size_t, ParameterPart>> copied_;
  bool planes_added_ = false;
  bool dropped_ = false;
  std::vector<double> norms_;
  at::Tensor outgoing_shard_;  // of parameters; undefined before the step
  std::optional<ShardCollectives> collectives_;
  ExpertGather expert_gather_;
  std::vector<NamedTensor> all_experts_;
};

}  // namespace penstock
