// ShardCollectives: the collectives of a stage's replicas, each of which has one shard of the
// parameters (FSDP). Private to train/.
//
// UNSHARD starts an all-gather of the weights and REDUCE_GRAD a reduce-scatter of the gradients.
// Both run while the rank computes. Whoever needs the result waits for it.
// Threads: the rank's thread, except for Abort.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "collective/rank_group.h"
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
  // other.
  struct Tensors {
    std::vector<at::Tensor> working, masters, gradients;
  };

  // `shard` is the own one. `shards` and `rank` must outlive the object; the group has one rank per
  // shard. Takes the memory away from tensors that are kept in shards.
  ShardCollectives(const Shards& shards, int shard, Kept kept, Tensors tensors,
                   std::shared_ptr<RankGroup> group, RankShards& rank);
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
  // REDUCE_GRAD. `shard` gets the sum of the own shard over the replicas.
  void StartReduction(const at::Tensor& shard);
  // Waits for the reduction, if one is in flight, and frees the gradients. Returns false after an
  // abort.
  [[nodiscard]] bool FinishReduction();
  // Whether there are gradients that are not reduced yet.
  bool has_gradients() const { return gradients_ && gradients_->exist(); }

  // Gathers the masters, between runs. All replicas start before any of them finishes. The memory
  // stays if `keep` is set.
  void StartGather();
  void FinishGather(bool keep);

  // Ends all waits, now and later. Any thread.
  void Abort(const Error& reason);

  // Returns the bytes of the shards of weights and masters.
  std::int64_t shard_bytes() const;

 private:
  using Ticket = std::optional<RankGroup::Ticket>;
  void StartAllGather(const at::Tensor& shard, const at::Tensor& all, Ticket& ticket);
  // Returns false after an abort.
  [[nodiscard]] bool Wait(Ticket& ticket);

  std::shared_ptr<RankGroup> group_;
  RankShards& rank_;
  at::Tensor masters_;                      // fp32
  at::Tensor working_;                      // what is gathered: the masters, or a cast of them
  std::optional<FullTensors> gathered_;     // the weights, if they are in shards
  std::optional<FullTensors> all_masters_;  // the masters, if the weights are a cast of them
  std::optional<FullTensors> gradients_;    // if they are in shards
  Ticket gathering_, reducing_;
  std::atomic<bool> aborted_{false};
};

}  // namespace penstock
