// ShardCollectives: the collectives of a stage's replicas, which have one shard of the parameters
// each (FSDP). Private to train/.
//
// UNSHARD starts the stage's graph `unshard`, an all-gather of the weights, and REDUCE_GRAD its
// graph `reduce_grad`, a reduce-scatter of the gradients. Both run while the rank computes. Whoever
// needs the result waits for it.
// Threads: the rank's thread, except for Abort.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "collective/rank_group.h"
#include "graph/compile.h"
#include "graph/run/collective_program.h"
#include "train/shards/full_tensors.h"
#include "train/shards/rank_shards.h"
#include "train/shards/shards.h"

namespace penstock {

class ShardCollectives {
 public:
  // What is in shards.
  struct Kept {
    bool weights = false;    // ZeRO-3
    bool gradients = false;  // ZeRO-2 and 3
  };
  // The tensors of a stage, by parameter. `working` and `masters` are the same or casts of each
  // other. `gradient_shard` gets the sum of the own shard of the gradients over the replicas.
  struct Tensors {
    std::vector<at::Tensor> working, masters, gradients;
    at::Tensor gradient_shard;
  };

  // `shard` is the own one. `shards` and `rank` must outlive the object; the group has one rank per
  // shard. Takes the memory away from tensors that are kept in shards.
  ShardCollectives(const Shards& shards, int shard, Kept kept, Tensors tensors,
                   const StageProgram& program, std::shared_ptr<RankGroup> group, RankShards& rank);
  ~ShardCollectives();
  ShardCollectives(const ShardCollectives&) = delete;
  ShardCollectives& operator=(const ShardCollectives&) = delete;

  // The own shard of the masters, in the order of the sequence; undefined if every replica has all.
  const at::Tensor& masters() const { return masters_; }
  // The shard of the weights follows the masters, after these have changed.
  void SetWorking();

  // UNSHARD and RESHARD.
  void Unshard();
  void Reshard();
  // Waits until the weights are gathered. Returns false after an abort.
  [[nodiscard]] bool AwaitWeights();

  // Makes room for the gradients, which start at 0, unless it exists.
  void BeginGradients();
  // Returns the whole gradients, one after another in the order of the sequence.
  const at::Tensor& WholeGradients();
  // REDUCE_GRAD.
  void StartReduction();
  // Waits for the reduction, if one is in flight, and frees the gradients. Returns false after an
  // abort.
  [[nodiscard]] bool FinishReduction();
  // Whether there are gradients that are not reduced yet.
  bool has_gradients() const { return gradients_ && gradients_->exist(); }

  // Gathers the masters, between runs. All replicas start before any of them finishes. The memory
  // stays if `keep` is set.
  void StartGather();
  void FinishGather(bool keep);
  // Frees what a gather kept.
  void DropGathered();

  // Ends all waits, now and later. Any thread.
  void Abort(const Error& reason);

  // Returns the bytes of the shards of weights and masters.
  std::int64_t shard_bytes() const;

 private:
  // Where the masters are gathered.
  FullTensors& all_masters() { return all_masters_ ? *all_masters_ : *gathered_; }
  // Waits for the program. Returns its outputs, or null after an abort.
  std::vector<at::Tensor>* Wait(CollectiveProgram& program);

  GroupEnd end_;
  RankShards& rank_;
  at::Tensor masters_;                      // fp32
  at::Tensor working_;                      // what is gathered: the masters, or a cast of them
  std::optional<FullTensors> gathered_;     // the weights, if they are in shards
  std::optional<FullTensors> all_masters_;  // the masters, if the weights are a cast of them
  std::optional<FullTensors> gradients_;    // if they are in shards
  std::int64_t reduced_bytes_ = 0;          // of a shard of gradients
  std::optional<CollectiveProgram> unshard_, reduce_grad_;
  std::optional<RankGroup::Ticket> gathering_masters_;
  std::atomic<bool> aborted_{false};
};

}  // namespace penstock
