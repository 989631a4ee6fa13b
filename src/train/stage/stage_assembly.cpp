#include "train/stage/stage_assembly.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/first_line.h"
#include "base/index.h"
#include "config/replicas.h"
#include "graph/device/device_plugin.h"
#include "graph/device/device_queue.h"
#include "graph/run/program_replays.h"
#include "schedule/passes/lanes.h"
#include "train/stage/offload_and_recompute.h"

namespace penstock {
namespace {

// Sets the queues and recorders of the ranks.
Status UseDevice(const Schedule& schedule, const LocalRanks& ranks, const DeviceUse& use,
                 std::vector<std::shared_ptr<DeviceQueue>>& queues,
                 std::vector<std::shared_ptr<RankRecorder>>& recorders) {
  if (use.device.is_cpu()) {
    if (!use.graphs && !use.parts) return {};
    return InvalidArgument("{} needs a device: a CPU has none; name one, or set it to false",
                           use.graphs ? "device_graphs" : "device_parts");
  }
  // The stream that copies would have to be waited for before a graph writes there again.
  if (use.graphs && HasOps(schedule, OpBit(Op::kOffload))) {
    return InvalidArgument("device_graphs cannot be used with OFFLOAD: set it to false");
  }
  DevicePlugin* plugin = nullptr;
  if (use.graphs || use.parts) {
    PENSTOCK_TRY(plugin, OpenDevicePlugin(use.device));
  }
  const int parts = static_cast<int>(ranks.here().size());
  int part = 0;
  for (const int rank : ranks.here()) {
    std::shared_ptr<DeviceQueue>& queue = queues[Index(rank)];
    try {
      queue = use.parts
                  ? std::make_shared<DeviceQueue>(plugin->MakePartStream(use.device, part++, parts))
                  : std::make_shared<DeviceQueue>(use.device);
    } catch (const std::exception& error) {
      return MakeError(ErrorCode::kUnavailable, "device_parts: {}", FirstLine(error.what()));
    }
    if (!use.graphs) continue;
    recorders[Index(rank)] = std::make_shared<RankRecorder>(
        RankRecorder{[plugin, device = use.device] { return plugin->MakeGraphPool(device); }});
  }
  return {};
}

}  // namespace

Result<StageAssembly> StageAssembly::Make(const Schedule& schedule, const ParallelConfig& parallel,
                                          const std::string& offload_folder,
                                          const LocalRanks& ranks, ProcessGroup* processes,
                                          const DeviceUse& use) {
  StageAssembly made;
  made.placement_ = schedule.placement;
  made.zero_ = ZeroOf(parallel, schedule);
  made.replicas_per_shard_ = ReplicasPerShard(parallel, schedule);
  made.rank_shards_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    made.rank_shards_[Index(rank)] = std::make_shared<RankShards>();
  }
  PENSTOCK_TRY(ExpertGroups experts,
               MakeExpertGroups(schedule, parallel, ranks, processes, use.device));
  for (const int rank : ranks.here()) {
    if (experts.empty()) break;
    made.rank_shards_[Index(rank)]->experts =
        std::make_unique<GroupEnd>(std::move(experts[Index(rank)]));
  }
  PENSTOCK_TRY(made.groups_, MakeReplicaGroups(schedule, parallel, ranks, processes, use.device));
  PENSTOCK_TRY(made.pools_, MakePools(schedule, offload_folder, ranks, use.device));
  made.queues_.resize(Index(schedule.ranks()));
  made.recorders_.resize(Index(schedule.ranks()));
  PENSTOCK_TRY_STATUS(UseDevice(schedule, ranks, use, made.queues_, made.recorders_));
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
