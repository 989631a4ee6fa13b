#include "train/stage/stage_assembly.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "config/replicas.h"
#include "graph/device/device_plugin.h"
#include "graph/device/device_queue.h"
#include "graph/run/program_replays.h"
#include "schedule/passes/lanes.h"
#include "train/stage/offload_and_recompute.h"

namespace penstock {
namespace {

Result<std::vector<std::shared_ptr<RankRecorder>>> MakeRecorders(const Schedule& schedule,
                                                                 const LocalRanks& ranks,
                                                                 c10::Device device) {
  if (device.is_cpu()) {
    return InvalidArgument("device_graphs: a CPU has no graphs; name a device, or set it to false");
  }
  // The stream that copies would have to be waited for before a graph writes there again.
  if (HasOps(schedule, OpBit(Op::kOffload))) {
    return InvalidArgument("device_graphs cannot be used with OFFLOAD: set it to false");
  }
  PENSTOCK_TRY(DevicePlugin* const plugin, OpenDevicePlugin(device));
  std::vector<std::shared_ptr<RankRecorder>> recorders(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    recorders[Index(rank)] = std::make_shared<RankRecorder>(
        RankRecorder{[plugin, device] { return plugin->MakeGraphPool(device); }});
  }
  return recorders;
}

}  // namespace

Result<StageAssembly> StageAssembly::Make(const Schedule& schedule, const ParallelConfig& parallel,
                                          const std::string& offload_folder,
                                          const LocalRanks& ranks, ProcessGroup* processes,
                                          c10::Device device, bool graphs) {
  StageAssembly made;
  made.placement_ = schedule.placement;
  made.zero_ = ZeroOf(parallel, schedule);
  made.replicas_per_shard_ = ReplicasPerShard(parallel, schedule);
  made.rank_shards_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    made.rank_shards_[Index(rank)] = std::make_shared<RankShards>();
  }
  PENSTOCK_TRY(ExpertGroups experts,
               MakeExpertGroups(schedule, parallel, ranks, processes, device));
  for (const int rank : ranks.here()) {
    if (experts.empty()) break;
    made.rank_shards_[Index(rank)]->experts =
        std::make_unique<GroupEnd>(std::move(experts[Index(rank)]));
  }
  PENSTOCK_TRY(made.groups_, MakeReplicaGroups(schedule, parallel, ranks, processes, device));
  PENSTOCK_TRY(made.pools_, MakePools(schedule, offload_folder, ranks, device));
  made.queues_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    if (!device.is_cpu()) made.queues_[Index(rank)] = std::make_shared<DeviceQueue>(device);
  }
  made.recorders_.resize(Index(schedule.ranks()));
  if (graphs) {
    PENSTOCK_TRY(made.recorders_, MakeRecorders(schedule, ranks, device));
  }
  return made;
}

void StageAssembly::Join(int stage, TorchStageOptions& options) const {
  const std::size_t rank = Index(placement_.rank_of(stage));
  options.replicas.group = groups_[Index(stage)];
  options.rank.shards = rank_shards_[rank];
  options.rank.pool = pools_[rank];
  options.rank.queue = queues_[rank];
  options.rank.recorder = recorders_[rank];
}

}  // namespace penstock
