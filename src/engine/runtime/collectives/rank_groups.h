// Groups of ranks of a run, for collectives between ranks of any processes.
//
// Ranks of one process exchange data through memory, and others through a channel of the process
// group. Its thread receives while the ranks compute. Data in memory of a device is copied to the
// host for other processes, unless the process group takes messages of the device.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/exchanger.h"
#include "collective/rank_group.h"
#include "runtime/collectives/message_memory.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"

namespace penstock {

// The ranks of a group, as numbers of ranks of the run. Rank i of the group is ranks[i].
struct RankGroupMembers {
  std::string name;  // for errors, for example "pipeline 0"
  std::vector<int> ranks;
  std::shared_ptr<MessageMemory> memory = nullptr;  // of the ranks here; null: the host's
};

// The ends of one group, by rank of the group; null for ranks of other processes.
using RankGroupEnds = std::vector<std::unique_ptr<RankGroup>>;

// For groups of a run whose watchdog, which knows what all ranks do, ends waits that take too long.
inline constexpr std::chrono::hours kNoTimeout{24 * 365};

// Creates groups, and returns this process's ends of each. Every process calls it with the same
// groups, in the same order as it creates its other channels. A rank may be in several groups.
// `processes` may be null if one process runs all ranks; otherwise it must outlive the ends. An
// abort of the process group, or the loss of a process, ends the waits of groups with ranks on
// several processes. `timeout` is as in RankGroupOptions. Errors: kInvalidArgument for an empty
// group, for a rank that does not exist or is in a group twice, and if `processes` is null although
// a rank is on another process. `link` is emulated, as in MakeLocalGroup, in groups whose ranks are
// on one process.
Result<std::vector<RankGroupEnds>> MakeRankGroups(
    const std::vector<RankGroupMembers>& groups, const LocalRanks& ranks, ProcessGroup* processes,
    std::chrono::milliseconds timeout = RankGroupOptions().timeout,
    std::optional<LinkSpeed> link = {});

}  // namespace penstock
