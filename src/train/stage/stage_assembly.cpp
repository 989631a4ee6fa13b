#include "train/stage/stage_assembly.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "config/replicas.h"
#include "graph/device/device_queue.h"
#include "train/stage/offload_and_recompute.h"

namespace penstock {
namespace {

// Refuses what is implemented for CPUs only.
Status CheckDevice(const Schedule& schedule, const ParallelConfig& parallel,
                   const ProcessGroup* processes, c10::Device device) {
  if (device.is_cpu()) return {};
  const auto refuse = [&](std::string_view parameter, std::string_view what) {
    return InvalidParameter(std::string(parameter),
                            ": {} is on the CPU only so far, not on {}; leave it out, or set "
                            "device: cpu",
                            what, device.str());
  };
  const bool offloads = std::ranges::any_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::any_of(
        lane, [](const Action& action) { return action.first.op == Op::kOffload; });
  });
  if (processes != nullptr && processes->processes() > 1) {
    return refuse("device", "a run of several processes");
  }
  if (ZeroOf(parallel, schedule) > 0) return refuse("parallel.zero", "ZeRO");
  if (parallel.expert > 1) return refuse("parallel.expert", "expert parallelism");
  if (schedule.vocabulary) return refuse("pipeline.passes", "a sharded vocabulary");
  if (offloads) return refuse("pipeline.passes", "OFFLOAD");
  return {};
}

}  // namespace

Result<StageAssembly> StageAssembly::Make(const Schedule& schedule, const ParallelConfig& parallel,
                                          const std::string& offload_folder,
                                          const LocalRanks& ranks, ProcessGroup* processes,
                                          c10::Device device) {
  PENSTOCK_TRY_STATUS(CheckDevice(schedule, parallel, processes, device));
  StageAssembly made;
  made.placement_ = schedule.placement;
  made.zero_ = ZeroOf(parallel, schedule);
  made.replicas_per_shard_ = ReplicasPerShard(parallel, schedule);
  made.rank_shards_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    made.rank_shards_[Index(rank)] = std::make_shared<RankShards>();
  }
  PENSTOCK_TRY(ExpertGroups experts, MakeExpertGroups(schedule, parallel, ranks, processes));
  for (const int rank : ranks.here()) {
    if (experts.empty()) break;
    made.rank_shards_[Index(rank)]->experts =
        std::make_unique<GroupEnd>(std::move(experts[Index(rank)]));
  }
  PENSTOCK_TRY(made.groups_, MakeReplicaGroups(schedule, parallel, ranks, processes));
  PENSTOCK_TRY(made.pools_, MakePools(schedule, offload_folder, ranks));
  made.queues_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    if (!device.is_cpu()) made.queues_[Index(rank)] = std::make_shared<DeviceQueue>(device);
  }
  return made;
}

void StageAssembly::Join(int stage, TorchStageOptions& options) const {
  const std::size_t rank = Index(placement_.rank_of(stage));
  options.replicas.group = groups_[Index(stage)];
  options.rank.shards = rank_shards_[rank];
  options.rank.pool = pools_[rank];
  options.rank.queue = queues_[rank];
}

}  // namespace penstock
