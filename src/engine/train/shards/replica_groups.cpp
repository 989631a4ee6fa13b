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
  const Mesh mesh = MeshOf(parallel, schedule);
  const int stages = schedule.stages() / mesh.replicas();  // of one pipeline
  std::vector<RankGroupMembers> members;
  for (int stage = 0; stage < stages; ++stage) {
    RankGroupMembers& group = members.emplace_back();
    group.name = fmt::format("replicas of stage {}", stage);
    group.ranks = mesh.GroupOf(placement.rank_of(stage), {Axis::kData, Axis::kExpert});
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
  std::vector<RankGroupMembers> members;
  for (std::vector<int>& group : MeshOf(parallel, schedule).Groups({Axis::kExpert})) {
    members.push_back(
        {.name = fmt::format("experts of rank {}", group.front()), .ranks = std::move(group)});
    members.back().memory = GroupMemoryOn(DeviceOf(members.back().ranks, ranks, devices));
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
