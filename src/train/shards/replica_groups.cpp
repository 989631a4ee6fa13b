#include "train/shards/replica_groups.h"

#include <chrono>
#include <utility>

#include "base/index.h"
#include "runtime/collectives/rank_groups.h"
#include "train/setup.h"

namespace penstock {
namespace {

// The run's watchdog ends a wait that takes too long, and knows what all ranks do.
constexpr std::chrono::hours kNoTimeout{24 * 365};

}  // namespace

Result<ReplicaGroups> MakeReplicaGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                        const HostedRanks& ranks, HostGroup* hosts) {
  const Placement& placement = schedule.placement;
  ReplicaGroups groups(schedule.stages());
  if (!HasReplicaGroups(parallel, schedule)) return groups;
  const int stages = schedule.stages() / parallel.data;  // of one pipeline
  std::vector<RankGroupMembers> members;
  for (int stage = 0; stage < stages; ++stage) {
    RankGroupMembers& group = members.emplace_back();
    group.name = fmt::format("replicas of stage {}", stage);
    for (int replica = 0; replica < parallel.data; ++replica) {
      group.ranks.push_back(placement.rank_of(replica * stages + stage));
    }
  }
  PENSTOCK_TRY(std::vector<RankGroupEnds> made, MakeRankGroups(members, ranks, hosts, kNoTimeout));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    groups[stage] = std::move(made[Index(stage % stages)][Index(stage / stages)]);
  }
  return groups;
}

}  // namespace penstock
