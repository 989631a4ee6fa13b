#include "train/shards/replica_groups.h"

#include <optional>
#include <utility>

#include "base/index.h"
#include "config/replicas.h"
#include "runtime/collectives/rank_groups.h"
#include "train/message/device_group_memory.h"

namespace penstock {
namespace {

// Returns the device of the members here, which is the CPU if there are none.
c10::Device DeviceOf(const std::vector<int>& members, const LocalRanks& ranks,
                     const std::vector<c10::Device>& devices) {
  const auto here = std::ranges::find_if(members, [&](int rank) { return ranks.has(rank); });
  return here == members.end() ? c10::Device(c10::kCPU) : devices[Index(*here)];
}

}  // namespace
Result<ReplicaGroups> MakeReplicaGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                        const LocalRanks& ranks, ProcessGroup* processes,
                                        const std::vector<c10::Device>& devices) {
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
    group.memory = GroupMemoryOn(DeviceOf(group.ranks, ranks, devices));
  }
  PENSTOCK_TRY(std::vector<RankGroupEnds> made,
               MakeRankGroups(members, ranks, processes, kNoTimeout));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    groups[stage] = std::move(made[Index(stage % stages)][Index(stage / stages)]);
  }
  return groups;
}

Result<ExpertGroups> MakeExpertGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                      const LocalRanks& ranks, ProcessGroup* processes,
                                      const std::vector<c10::Device>& devices) {
  ExpertGroups groups;
  if (parallel.expert == 1) return groups;
  PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(parallel));
  const int pipeline = schedule.ranks() / parallel.data;  // ranks of one pipeline
  std::vector<RankGroupMembers> members;
  for (int first = 0; first < parallel.data; first += parallel.expert) {
    for (int index = 0; index < pipeline; ++index) {
      RankGroupMembers& group = members.emplace_back();
      group.name = fmt::format("experts of rank {}", first * pipeline + index);
      for (int part = 0; part < parallel.expert; ++part) {
        group.ranks.push_back((first + part) * pipeline + index);
      }
      group.memory = GroupMemoryOn(DeviceOf(group.ranks, ranks, devices));
    }
  }
  PENSTOCK_TRY(std::vector<RankGroupEnds> made,
               MakeRankGroups(members, ranks, processes, kNoTimeout, link));
  groups.resize(Index(schedule.ranks()));
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t part = 0; part < members[i].ranks.size(); ++part) {
      groups[Index(members[i].ranks[part])] = std::move(made[i][part]);
    }
  }
  return groups;
}

}  // namespace penstock
