// ReplicaDivision: which shard and which experts each replica of a stage has. Private to train/.
#pragma once

#include <vector>

#include "base/index.h"

namespace penstock {

struct ReplicaDivision {
  int replicas = 1;
  int chain = 0;                  // the stage's own
  int zero = 0;                   // see UpdateRule
  int per_shard = 1;              // consecutive replicas with the same shard
  std::vector<int> experts = {};  // by chain: which part of the experts it has; empty if all

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
