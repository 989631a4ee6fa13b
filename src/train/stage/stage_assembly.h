// StageAssembly: what the stages of this process's ranks share with each other and with those of
// other processes, for `train` and for Python alike. Private to train/ and its bindings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "schedule/schedule.h"
#include "train/offload/activation_pool.h"
#include "train/shards/rank_shards.h"
#include "train/shards/replica_groups.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// How ranks use their device.
struct DeviceUse {
  c10::Device device = c10::kCPU;
  bool graphs = false;  // TrainConfig::device_graphs
  bool parts = false;   // TrainConfig::device_parts
};

class StageAssembly {
 public:
  // Creates the groups of replicas and experts, the pools of OFFLOAD with their files in
  // `offload_folder`, and the queues of ranks on a device. Every process calls it at the same place
  // of its start. `processes` is null for a single process, and must outlive the object. Errors: as
  // MakeReplicaGroups, MakeExpertGroups, MakePools and OpenDevicePlugin; kInvalidArgument for
  // graphs or parts of a CPU, or graphs with OFFLOAD; kUnavailable if the device cannot be divided.
  static Result<StageAssembly> Make(const Schedule& schedule, const ParallelConfig& parallel,
                                    const std::string& offload_folder, const LocalRanks& ranks,
                                    ProcessGroup* processes, const DeviceUse& use = {});

  // Sets the options of a stage of this process: its group, pool, queue and rank.
  void Join(int stage, TorchStageOptions& options) const;

  int zero() const { return zero_; }                              // see UpdateRule
  int replicas_per_shard() const { return replicas_per_shard_; }  // consecutive ones, of a stage
  // By rank; null for ranks of other processes.
  const std::vector<std::shared_ptr<RankShards>>& rank_shards() const { return rank_shards_; }
  // By rank; null without graphs.
  const std::vector<std::shared_ptr<RankRecorder>>& recorders() const { return recorders_; }

 private:
  Placement placement_;
  int zero_ = 0;
  int replicas_per_shard_ = 1;
  ReplicaGroups groups_;
  std::vector<std::shared_ptr<RankShards>> rank_shards_;  // by rank
  std::vector<std::shared_ptr<ActivationPool>> pools_;    // by rank
  std::vector<std::shared_ptr<DeviceQueue>> queues_;      // by rank; null on CPUs
  std::vector<std::shared_ptr<RankRecorder>> recorders_;  // by rank; null without graphs
};

}  // namespace penstock
