// ReplicaDivision: which shard and which experts each replica of a stage has. Private to train/.
#pragma once

#include <vector>

#include "base/index.h"
#include "train/stage/torch_stage.h"

namespace penstock {

struct ReplicaDivision {
  explicit ReplicaDivision(const TorchStageOptions& options)
      : replicas(options.replicas.count),
        chain(options.replicas.chain),
        zero(options.replicas.zero),
        per_shard(zero == 0 ? replicas : replicas / options.replicas.shards),
        experts(options.experts.parts) {}

  int replicas;
  int chain;                 // the stage's own
  int zero;                  // see UpdateRule
  int per_shard;             // consecutive replicas with the same shard
  std::vector<int> experts;  // as ExpertParallelism::parts

  // The shard that the replica in a chain updates.
  int ShardOf(int of_chain) const { return of_chain / per_shard; }
  int shard() const { return ShardOf(chain); }
  // Whether this replica's norm of its shard counts. Only one of equal replicas counts.
  bool counts() const { return chain % per_shard == 0; }
  bool HaveSameExperts(int one, int other) const {
    return experts.empty() || experts[Index(one)] == experts[Index(other)];
  }
};

}  // namespace penstock
