#include "config/replicas.h"

#include <algorithm>
#include <tuple>

#include "schedule/passes/lanes.h"
#include "schedule/passes/passes.h"

namespace penstock {

Mesh MeshOf(const ParallelConfig& parallel, const Schedule& schedule) {
  return Mesh::Make({.data = parallel.data,
                     .expert = parallel.expert,
                     .pipeline = schedule.ranks() / parallel.data})
      .value();
}

Mesh MeshOfPlanes(const ParallelConfig& parallel, const Schedule& schedule) {
  return Mesh::Make({.data = parallel.data,
                     .expert = parallel.expert,
                     .pipeline = schedule.ranks() / parallel.data,
                     .tensor = parallel.tensor})
      .value();
}

LayerRange WithParts(LayerRange range, const ParallelConfig& parallel, const Schedule& schedule,
                     int rank, int plane) {
  const Mesh mesh = MeshOf(parallel, schedule);
  range.expert_ranks = mesh.size(Axis::kExpert);
  range.expert_rank = mesh.PlaceOf(rank, Axis::kExpert);
  range.tensor_ranks = parallel.tensor;
  range.tensor_rank = plane;
  return range;
}

// Replicas with different experts have different gradient norms, which only ranks with shards add.
int ZeroOf(const ParallelConfig& parallel, const Schedule& schedule) {
  if (schedule.placement.replicas() == 1) return 0;
  if (parallel.expert > 1) return std::max(parallel.zero, 1);
  return parallel.data == 1 ? std::min(parallel.zero, 1) : parallel.zero;
}

bool HasReplicaGroups(const ParallelConfig& parallel, const Schedule& schedule) {
  const int zero = ZeroOf(parallel, schedule);
  return zero >= 2 || (zero == 1 && schedule.placement.replicas() == parallel.data);
}

Result<Schedule> ShardSchedule(const Schedule& schedule, const ParallelConfig& parallel) {
  const int zero = ZeroOf(parallel, schedule);
  constexpr unsigned kGathers = OpBit(Op::kUnshard) | OpBit(Op::kReshard);
  for (const auto& [ops, names, least] : {std::tuple(kGathers, "UNSHARD and RESHARD", 3),
                                          std::tuple(OpBit(Op::kReduceGrad), "REDUCE_GRAD", 2)}) {
    if (zero >= least || !HasOps(schedule, ops)) continue;
    return InvalidParameter(
        "pipeline.csv",
        ": {} are for shards: set parallel.zero={} and parallel.data to at least 2, or "
        "remove them from the file",
        names, least);
  }
  if (zero < 2) return schedule;
  if (zero == 2) return AddReduceGrad(schedule);
  PENSTOCK_TRY(const Schedule sharded, AddSharding(schedule, {.lookahead = parallel.lookahead,
                                                              .residency = parallel.residency}));
  return AddReduceGrad(sharded);  // a file may have UNSHARD alone
}

// Norms are added shard by shard for all values of `zero`, so that they are bitwise the same if the
// shards are.
int ShardsOfStage(const ParallelConfig& parallel, const Schedule& schedule) {
  if (ZeroOf(parallel, schedule) >= 2) return parallel.data;
  return parallel.data > 1 || parallel.zero > 0 ? schedule.placement.replicas() : 1;
}

int ReplicasPerShard(const ParallelConfig& parallel, const Schedule& schedule) {
  const int replicas = schedule.placement.replicas();
  const int zero = ZeroOf(parallel, schedule);
  if (zero == 0) return replicas;
  return zero == 1 ? 1 : replicas / parallel.data;
}

}  // namespace penstock
