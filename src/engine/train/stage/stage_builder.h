// StageBuilder: builds the stages of this process's ranks, for `train` and for Python alike, with
// what they share with each other and with other processes' stages: groups, pools, queues and
// programs. Private to train/ and its bindings. Threads: one at a time.
#pragma once

#include <functional>
#include <map>
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

// How the ranks of a process use devices, which are of one type.
struct DeviceUse {
  c10::Device device = c10::kCPU;         // of all ranks, if by_rank is empty
  bool graphs = false;                    // TrainConfig::device_graphs
  bool parts = false;                     // TrainConfig::device_parts
  std::vector<c10::Device> by_rank = {};  // of the ranks of other processes, any
};

// What a rank has on its device; nothing on a CPU. The fields are as in StageRank.
struct RankDevice {
  std::shared_ptr<DeviceQueue> queue = nullptr;
  std::shared_ptr<PeerCopies> peers = nullptr;
  std::shared_ptr<RankRecorder> recorder = nullptr;
};

// A stage before its programs are bound.
struct StageToBuild {
  std::shared_ptr<StageModule> captured;  // what the programs compute
  std::shared_ptr<StageModule> trained;   // has the weights that are updated; may be `captured`
  StageExamples examples;
  TorchStageOptions options;
};

class StageBuilder {
 public:
  using Programs = std::shared_ptr<const std::vector<StageProgram>>;

  // Creates the groups of replicas and experts, the pools of OFFLOAD with their files in
  // `offload_folder`, and the queues of ranks on a device. Every process calls it at the same place
  // of its start. `processes` is null for a single process, and must outlive the object. Errors: as
  // MakeReplicaGroups, MakeExpertGroups, MakePools and OpenDevicePlugin; kInvalidArgument for
  // graphs or parts of a CPU, or graphs with OFFLOAD; kUnavailable if the device cannot be divided.
  static Result<StageBuilder> Make(const Schedule& schedule, const ParallelConfig& parallel,
                                   const std::string& offload_folder, const LocalRanks& ranks,
                                   ProcessGroup* processes, const DeviceUse& use = {});

  // Sets the options of a stage of this process: its group, pool, queue and rank.
  void Join(int stage, TorchStageOptions& options) const;

  // Sets the programs of a stage, unless it has some. Stages of one kind have the same ones, which
  // are compiled once. Errors: as CompileSlices.
  Status SetPrograms(int kind, StageToBuild& stage,
                     const std::function<void(int slice)>& on_slice = {});
  // Returns the programs of a kind; null before SetPrograms.
  Programs ProgramsOf(int kind) const;
  // Binds the programs of a stage. Errors: as TorchStage::Make.
  static Result<std::unique_ptr<TorchStage>> Build(const StageToBuild& stage, BatchSource source,
                                                   TorchStage::Update update) {
    return TorchStage::Make(stage.trained, stage.examples, std::move(source), stage.options,
                            std::move(update));
  }

  int zero() const { return zero_; }                              // see UpdateRule
  int replicas_per_shard() const { return replicas_per_shard_; }  // consecutive ones, of a stage
  // By rank; null for ranks of other processes.
  const std::vector<std::shared_ptr<RankShards>>& rank_shards() const { return rank_shards_; }
  // By rank; null without graphs.
  std::vector<std::shared_ptr<RankRecorder>> recorders() const;

 private:
  Placement placement_;
  int zero_ = 0;
  int replicas_per_shard_ = 1;
  ReplicaGroups groups_;
  std::vector<std::shared_ptr<RankShards>> rank_shards_;  // by rank
  std::vector<std::shared_ptr<ActivationPool>> pools_;    // by rank
  std::vector<RankDevice> on_devices_;                    // by rank
  std::map<int, Programs> programs_;                      // by kind
};

}  // namespace penstock
