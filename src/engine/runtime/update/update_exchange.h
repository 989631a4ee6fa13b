// UpdateExchange: what ranks exchange before weights change: the gradients of replicas, and the
// norm of all gradients. One per rank, over any transport.
//
// Replicas: the gradients of a stage are sent to its replicas in the other chains as soon as they
// are complete. Before its step, the stage adds the gradients of all chains in the order of the
// chains, so that all replicas have bitwise the same sum and stay equal. Shared parameters: every
// stage that holds a copy sends its gradient to the other holders, and each adds all of them in the
// order of the stages, so that the copies stay bitwise equal. Shards: with UpdateRule::zero 1, a
// stage sends each replica only the gradients of that replica's shard. With 1 and 2, it sends its
// own shard of the parameters after the step. From 2 on, REDUCE_GRAD adds the gradients of sharded
// parameters, and only the other gradients are sent here. Norm: each rank sends the squared norms
// of its stages' gradients, one per parameter, to the rank of the last stage, which is the first to
// need the verdict. That rank adds them in the order of the model, for chain 0 only (with shards,
// of each parameter over all chains in their order), and sends the sum to all ranks. The result is
// the same for every placement. Threads: its rank's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "runtime/update/update.h"

namespace penstock {

class UpdateExchange {
 public:
  // All of it must outlive the exchange. `stages` are by stage number; other ranks' may
  // be null.
  struct RankContext {
    const Schedule* schedule = nullptr;
    int rank = 0;
    std::span<Stage* const> stages;
    Transport* transport = nullptr;
  };
  UpdateExchange(const RankContext& context, const UpdateRule& rule);

  // In the following, `round` counts updates from 0, and false means that the transport was
  // aborted.

  // Sends the stage's gradients to its replicas. Never waits.
  void ShareGradients(int stage, std::int64_t round);
  // Waits for the gradients of the stage's replicas and adds them to its own.
  [[nodiscard]] bool AddGradients(int stage, std::int64_t round);
  // Exchange and add gradients of the parameters that the stage shares with others of its chain.
  void ShareParameters(int stage, std::int64_t round);
  [[nodiscard]] bool AddParameters(int stage, std::int64_t round);
  // If UpdateRule::sends_shards(): sends the stage's updated shard to its replicas, and waits for
  // their shards. `round` counts steps, including repeated ones.
  void ShareShard(int stage, std::int64_t round);
  [[nodiscard]] bool TakeShards(int stage, std::int64_t round);
  // Records the norms of the stage's gradients, which must be complete and added.
  void Measure(int stage);
  // Sends the recorded norms of the rank's stages. Never waits.
  void SendNorms(std::int64_t round);
  // Waits for the verdict, and on the rank of the last stage also for the norms of all others.
  [[nodiscard]] bool Agree(std::int64_t round, Verdict& verdict);

  // Returns the slot that it is waiting for, or -1. Any thread.
  int waits_for() const { return waits_for_.load(std::memory_order_relaxed); }

 private:
  using ReplicaSlot = int (MessageMap::*)(int stage, int to_chain) const;
  // Sends share(chain) to the stage's replica in each other chain.
  template <class Share>
  void SendToReplicas(int stage, std::int64_t round, ReplicaSlot slot_of, Share share);
  // Calls take(chain, message) for what the replica in each other chain has sent.
  template <class Take>
  [[nodiscard]] bool TakeFromReplicas(int stage, std::int64_t round, ReplicaSlot slot_of,
                                      Take take);
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message);
  [[nodiscard]] bool GatherNorms(std::int64_t round, double& squared_norm);
  void TakeNorms(std::span<const double> norms);
  bool counts(int stage) const {
    return rule_.zero > 0 || stage < context_.schedule->placement.chain_length();
  }

  RankContext context_;
  UpdateRule rule_;
  MessageMap messages_;
  // By stage of chain 0 on this rank: its number, the number of norms, the norms.
  std::vector<double> own_norms_;
  double squared_norm_ = 0;                 // the sum that the root sends
  std::vector<std::vector<double>> norms_;  // by stage; at the root
  std::atomic<int> waits_for_{-1};
};

}  // namespace penstock
