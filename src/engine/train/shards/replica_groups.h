// The groups of replicas that have the shards of a stage, for the collectives of ZeRO.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/rank_group.h"
#include "config/train_config.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "schedule/schedule.h"

namespace penstock {

// By stage; null for stages of other processes, or if the run has no such groups.
using ReplicaGroups = std::vector<std::shared_ptr<RankGroup>>;

// Creates the groups, whose data is on the device of their ranks, by rank in `devices`. Every
// process calls it at the same place of its start. `processes` is null for a single process, and
// must outlive the groups. Errors: as MakeRankGroups.
Result<ReplicaGroups> MakeReplicaGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                        const LocalRanks& ranks, ProcessGroup* processes,
                                        const std::vector<c10::Device>& devices);

// By rank; null for ranks of other processes.
using ExpertGroups = std::vector<std::shared_ptr<RankGroup>>;

// Creates the groups of ranks that divide the experts of their stages (parallel.expert). Empty if
// they do not. Ranks of one process emulate `parallel.link`, if set. As MakeReplicaGroups
// otherwise.
Result<ExpertGroups> MakeExpertGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                      const LocalRanks& ranks, ProcessGroup* processes,
                                      const std::vector<c10::Device>& devices);

}  // namespace penstock
