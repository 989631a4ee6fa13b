#include "train/stage/stage_builder.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/first_line.h"
#include "base/index.h"
#include "config/replicas.h"
#include "graph/device/device_plugin.h"
#include "graph/device/device_queue.h"
#include "graph/device/peer_copies.h"
#include "graph/run/program_replays.h"
#include "schedule/passes/lanes.h"
#include "train/stage/offload_and_recompute.h"
#include "train/stage/stage_spec.h"

namespace penstock {
namespace {

Status CheckUse(const Schedule& schedule, const DeviceUse& use, c10::Device device) {
  if (device.is_cpu() && (use.graphs || use.parts)) {
    return InvalidArgument("{} needs a device: a CPU has none; name one, or set it to false",
                           use.graphs ? "device_graphs" : "device_parts");
  }
  // The stream that copies would have to be waited for before a graph writes there again.
  if (use.graphs && HasOps(schedule, OpBit(Op::kOffload))) {
    return InvalidArgument("device_graphs cannot be used with OFFLOAD: set it to false");
  }
  return {};
}

// The part of a device that a rank of this process has.
struct RankPart {
  int part = 0, parts = 0;
};

RankPart PartOf(int rank, const LocalRanks& ranks, const std::vector<c10::Device>& devices) {
  RankPart found;
  for (const int other : ranks.here()) {
    if (devices[Index(other)] != devices[Index(rank)]) continue;
    if (other < rank) ++found.part;
    ++found.parts;
  }
  return found;
}

Result<std::shared_ptr<DeviceQueue>> MakeQueue(c10::Device device, DevicePlugin* plugin,
                                               const RankPart& of) {
  try {
    if (plugin == nullptr) return std::make_shared<DeviceQueue>(device);
    return std::make_shared<DeviceQueue>(plugin->MakePartStream(device, of.part, of.parts));
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "device_parts: {}", FirstLine(error.what()));
  }
}

// Returns what the ranks here have on their devices, by rank.
Result<std::vector<RankDevice>> MakeRankDevices(const LocalRanks& ranks, const DeviceUse& use,
                                                const std::vector<c10::Device>& devices) {
  std::vector<RankDevice> made(devices.size());
  DevicePlugin* plugin = nullptr;
  if (use.graphs || use.parts) {
    PENSTOCK_TRY(plugin, OpenDevicePlugin(devices[Index(ranks.here().front())]));
  }
  const auto is_other = [&](int rank) {
    return devices[Index(rank)] != devices[Index(ranks.here().front())];
  };
  const bool has_peers = std::ranges::any_of(ranks.here(), is_other);
  for (const int rank : ranks.here()) {
    const c10::Device device = devices[Index(rank)];
    RankDevice& of = made[Index(rank)];
    PENSTOCK_TRY(of.queue,
                 MakeQueue(device, use.parts ? plugin : nullptr, PartOf(rank, ranks, devices)));
    if (has_peers) of.peers = std::make_shared<PeerCopies>(device);
    if (!use.graphs) continue;
    of.recorder = std::make_shared<RankRecorder>(
        RankRecorder{[plugin, device] { return plugin->MakeGraphPool(device); }});
  }
  return made;
}

}  // namespace

Result<StageBuilder> StageBuilder::Make(const Schedule& schedule, const ParallelConfig& parallel,
                                        const std::string& offload_folder, const LocalRanks& ranks,
                                        ProcessGroup* processes, const DeviceUse& use) {
  StageBuilder made;
  made.placement_ = schedule.placement;
  made.zero_ = ZeroOf(parallel, schedule);
  made.replicas_per_shard_ = ReplicasPerShard(parallel, schedule);
  made.rank_shards_.resize(Index(schedule.ranks()));
  for (const int rank : ranks.here()) {
    made.rank_shards_[Index(rank)] = std::make_shared<RankShards>();
  }
  const std::vector<c10::Device> devices =
      use.by_rank.empty() ? std::vector(Index(schedule.ranks()), use.device) : use.by_rank;
  PENSTOCK_TRY(ExpertGroups experts,
               MakeExpertGroups(schedule, parallel, ranks, processes, devices));
  for (const int rank : ranks.here()) {
    if (experts.empty()) break;
    made.rank_shards_[Index(rank)]->experts =
        std::make_unique<GroupEnd>(std::move(experts[Index(rank)]));
  }
  PENSTOCK_TRY(made.groups_, MakeReplicaGroups(schedule, parallel, ranks, processes, devices));
  PENSTOCK_TRY(made.pools_, MakePools(schedule, offload_folder, ranks, devices));
  made.on_devices_.resize(devices.size());
  if (ranks.here().empty()) return made;  // of a plane on other processes
  const c10::Device first = devices[Index(ranks.here().front())];
  PENSTOCK_TRY_STATUS(CheckUse(schedule, use, first));
  if (!first.is_cpu()) {
    PENSTOCK_TRY(made.on_devices_, MakeRankDevices(ranks, use, devices));
  }
  return made;
}

void StageBuilder::Join(int stage, TorchStageOptions& options) const {
  const std::size_t rank = Index(placement_.rank_of(stage));
  options.replicas.group = groups_[Index(stage)];
  options.rank.shards = rank_shards_[rank];
  options.rank.pool = pools_[rank];
  options.rank.queue = on_devices_[rank].queue;
  options.rank.peers = on_devices_[rank].peers;
  options.rank.recorder = on_devices_[rank].recorder;
}

Status StageBuilder::SetPrograms(int kind, StageToBuild& stage,
                                 const std::function<void(int slice)>& on_slice) {
  if (stage.options.programs == nullptr) stage.options.programs = ProgramsOf(kind);
  if (stage.options.programs != nullptr) return {};
  PENSTOCK_TRY(std::vector<StageProgram> programs,
               CompileSlices(stage.captured, stage.examples, stage.options, on_slice));
  stage.options.programs = std::make_shared<const std::vector<StageProgram>>(std::move(programs));
  programs_[kind] = stage.options.programs;
  return {};
}

StageBuilder::Programs StageBuilder::ProgramsOf(int kind) const {
  const auto found = programs_.find(kind);
  return found == programs_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<RankRecorder>> StageBuilder::recorders() const {
  std::vector<std::shared_ptr<RankRecorder>> recorders;
  for (const RankDevice& each : on_devices_) recorders.push_back(each.recorder);
  return recorders;
}

}  // namespace penstock
