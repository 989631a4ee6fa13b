#include "schedule/topology.h"

#include <algorithm>
#include <cmath>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

Status CheckLevel(const LinkLevel& level, const LinkLevel* before) {
  for (const double value : {level.latency, level.bandwidth}) {
    if (std::isfinite(value) && value >= 0) continue;
    return InvalidArgument("level {}: {} is not a latency or bandwidth; give at least 0",
                           Quote(level.name), value);
  }
  if (level.ranks < 1) {
    return InvalidArgument("level {}: {} ranks; give at least 1", Quote(level.name), level.ranks);
  }
  if (before == nullptr || level.ranks == LinkLevel::kAllRanks) return {};
  if (level.ranks > before->ranks && level.ranks % before->ranks == 0) return {};
  return InvalidArgument("level {}: {} ranks are not several groups of level {}, of {} ranks each",
                         Quote(level.name), level.ranks, Quote(before->name), before->ranks);
}

}  // namespace

std::size_t Topology::LevelOf(int from, int to) const {
  for (std::size_t level = 0; level < levels.size(); ++level) {
    if (from / levels[level].ranks == to / levels[level].ranks) return level;
  }
  PENSTOCK_CHECK(false, "no level connects ranks {} and {}", from, to);
  return levels.size();
}

int Topology::OwnerOf(std::size_t level, int rank) const {
  if (level == 0 || !levels[level].shared) return rank;
  return rank / levels[level - 1].ranks;
}

double Topology::LongestTime(int ranks, double bytes) const {
  double longest = 0;
  int connected = 1;  // ranks of a group of the levels before
  for (const LinkLevel& level : levels) {
    if (connected >= ranks) break;
    const double transfer = level.bandwidth > 0 ? bytes / level.bandwidth : 0;
    longest = std::max(longest, level.latency + transfer);
    connected = level.ranks;
  }
  return longest;
}

Status CheckTopology(const Topology& topology) {
  const LinkLevel* before = nullptr;
  if (!topology.empty() && topology.levels.front().shared) {
    return InvalidArgument(
        "level {}: the innermost links belong to one rank each; share those of an outer level",
        Quote(topology.levels.front().name));
  }
  for (const LinkLevel& level : topology.levels) {
    if (before != nullptr && before->ranks == LinkLevel::kAllRanks) {
      return InvalidArgument("level {} connects all ranks already; give its number of ranks",
                             Quote(before->name));
    }
    PENSTOCK_TRY_STATUS(CheckLevel(level, before));
    before = &level;
  }
  return {};
}

Status CheckTopology(const Topology& topology, int ranks) {
  PENSTOCK_TRY_STATUS(CheckTopology(topology));
  if (topology.empty() || topology.levels.back().ranks >= ranks) return {};
  return InvalidArgument("the topology connects {} ranks, the schedule has {}; add a level",
                         topology.levels.back().ranks, ranks);
}

Result<Transfers> ParseTransfers(const std::string& text) {
  if (text == "asynchronous") return Transfers::kAsynchronous;
  if (text == "blocking") return Transfers::kBlocking;
  if (text == "batched") return Transfers::kBatched;
  return InvalidArgument("{}: give asynchronous, blocking or batched{}", Quote(text),
                         Suggestion(text, {kTransfersNames.begin(), kTransfersNames.end()}));
}

}  // namespace penstock
