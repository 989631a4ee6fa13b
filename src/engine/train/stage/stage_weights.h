// StageWeights: the parameters of a stage, their gradients, and the weight versions that
// microbatches in flight still read. Private to train/. Threads: used by its stage's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "runtime/message.h"
#include "train/shards/expert_gather.h"
#include "train/shards/shard_collectives.h"
#include "train/shards/shards.h"
#include "train/stage/step_losses.h"
#include "train/stage/torch_stage.h"

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
  const std::vector<at::Tensor>& values() const { return values_; }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  // What the stage updates: all of its parameters, or the parts in its shard and those in no shard.
  std::vector<NamedParameter>& parameters() { return updated_; }
  // What a checkpoint must set before the first step; then call SetWorking().
  std::vector<NamedParameter> Restored() const;

  // Declares that the stage runs another program, too. See NamedParameter::has_gradient.
  void AddProgram(const StageProgram& program);

  // Returns the number of updates of the run so far, which is also the newest version.
  std::int64_t updates() const { return updates_; }
  void StartAt(std::int64_t updates) { updates_ = updates; }
  // Switches to a version. Requires: the version is kept.
  void Use(std::int64_t version);
  // Copies the masters to the working tensors.
  void SetWorking();
  // As in TorchStage.
  void SetWeights(std::span<const at::Tensor> whole);
  int versions() const { return 1 + static_cast<int>(older_.size()); }

  // As in Stage.
  void Step(const TorchStage::Update& update);
  void TryStep(const TorchStage::Update& update);
  // Drops the gradients of a step that has failed before its update, also other stages'.
  void Forget();

  void CommitStep() override;
  void RollBackStep() override;
  void ScaleGradients(double factor) override;
  void DropGradients() override { dropped_ = true; }
  // By parameter, also for parameters that it does not update.
  std::span<const double> SquaredNorms() override;
  std::string ParameterName(std::size_t index) const override { return parameters_[index].name; }
  Message ShareParameter(int parameter) override;
  void TakeParameter(int parameter, int holder, Message gradient) override;
  void AddParameter(int parameter) override;
  Message ShareGradients(int to_chain) override;
  void TakeGradients(int chain, Message gradients) override;
  void AddGradients() override;
  Message ShareShard() override;
  void TakeShard(int chain, Message parameters) override;

  // The collectives of the replicas; null without any.
  ShardCollectives* collectives() { return collectives_ ? &*collectives_ : nullptr; }

  // The ranks that divide the experts; null if none do.
  GroupEnd* expert_group() const { return rank_->experts.get(); }

  // As in TorchStage.
  void StartGather();
  void FinishGather(bool keep);
  void DropGathered();
  const std::vector<NamedTensor>& AllExperts() const { return all_experts_; }

  // Returns the losses of another chain. Valid after AddGradients().
  std::span<const float> LossesOf(int chain) const { return losses_of_[chain].Read(); }

 private:
  // A parameter that other stages share.
  struct Shared {
    std::size_t index = 0;  // in parameters_
    int holder = 0;
    at::Tensor outgoing;               // other holders read it
    std::vector<at::Tensor> incoming;  // by holder
  };

  // A range of `flat_`, and its place in messages between replicas. In elements.
  struct Range {
    std::int64_t begin, size, in_message;
  };
  // The ranges of `flat_` that the replica in a chain receives from the one in another.
  std::vector<Range> RangesOf(int chain, int from) const;
  // Whether the replicas in two chains have the same experts.
  bool HaveSameExperts(int chain, int other) const;
  // Whether this replica's norm of a parameter in no shard counts.
  bool CountsUnsharded(std::size_t parameter) const;
  // The shard that the replica in a chain updates.
  int ShardOf(int chain) const { return chain / chains_per_shard_; }
  // Whether the stage's norm of its shard counts. Only one of equal replicas counts.
  bool counts() const { return chain_ % chains_per_shard_ == 0; }
  // The place in `flat_` of an element of the sequence (see Shards).
  std::int64_t InFlat(std::int64_t element) const;
  void MakeCollectives(const StageProgram& program, const TorchStageOptions& options);
  void ChooseUpdated(const TorchStageOptions& options);
  bool has_master_shard() const { return collectives_ && collectives_->masters().defined(); }
  std::int64_t WeightBytes() const;  // held all the time
  at::Tensor Sent(const Shards::ParameterPiece& piece) const;
  at::ScalarType SentType() const;
  at::TensorOptions OnDevice(at::ScalarType type) const {
    return at::TensorOptions().dtype(type).device(losses_.values().device());
  }
  std::int64_t ElementsFrom(int chain) const;
  at::Tensor GradientOf(const Shards::ParameterPiece& piece) const;
  void Update(const TorchStage::Update& update);
  void Clear();

  const StepLosses& losses_;
  bool cast_;
  OptimizerHooks optimizer_;
  int chain_;
  std::vector<at::Tensor> values_;              // bound to graphs: the memory of one version
  std::vector<at::Tensor> newest_;              // the working tensors
  std::vector<std::vector<at::Tensor>> older_;  // version v is at index v % size
  int in_use_ = -1;                             // index in older_; -1: the newest
  std::int64_t updates_ = 0;
  int zero_;
  std::vector<int> expert_parts_;  // by chain
  int chains_per_shard_;
  Shards shards_;
  // All gradients (from ZeRO-2 on, of the own shard and of parameters in no shard), so that one
  // call clears or adds them.
  at::Tensor flat_;
  std::shared_ptr<RankShards> rank_;
  std::vector<at::Tensor> gradients_;
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> updated_;
  std::vector<std::optional<Shared>> shared_;  // as in TorchStageOptions
  bool dropped_ = false;
  std::vector<double> norms_;
  std::vector<at::Tensor> outgoing_;   // by shard; replicas read it; reused after all have read it
  at::Tensor outgoing_shard_;          // of parameters; undefined before the step
  std::vector<at::Tensor> incoming_;   // by chain
  std::vector<StepLosses> losses_of_;  // by chain
  std::optional<ShardCollectives> collectives_;
  ExpertGather expert_gather_;
  std::vector<NamedTensor> all_experts_;
};

}  // namespace penstock
