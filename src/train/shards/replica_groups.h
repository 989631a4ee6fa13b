// The groups of replicas that have the shards of a stage, for the collectives of ZeRO.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/rank_group.h"
#include "config/train_config.h"
#include "runtime/hosts/host_group.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"

namespace penstock {

// By stage; null for stages of other hosts, or if the run has no such groups.
using ReplicaGroups = std::vector<std::shared_ptr<RankGroup>>;

// Creates the groups. Every host calls it at the same place of its start. `hosts` is null for a
// single host, and must outlive the groups. Errors: as MakeRankGroups.
Result<ReplicaGroups> MakeReplicaGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                        const HostedRanks& ranks, HostGroup* hosts);

// By rank; null for ranks of other hosts.
using ExpertGroups = std::vector<std::shared_ptr<RankGroup>>;

// Creates the groups of ranks that divide the experts of their stages (parallel.expert). Empty if
// they do not. Ranks of one host emulate `parallel.link`, if set. As MakeReplicaGroups otherwise.
Result<ExpertGroups> MakeExpertGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                      const HostedRanks& ranks, HostGroup* hosts);

}  // namespace penstock
