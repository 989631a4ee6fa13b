#include "schedule/topology.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// Returns an error about a parameter of a level.
template <class... Args>
Status RefuseLevel(const LinkLevel& level, std::string_view parameter,
                   fmt::format_string<Args...> format, Args&&... args) {
  Error error{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...),
              std::string(parameter)};
  return tl::unexpected(In("level " + Quote(level.name), std::move(error)));
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

Status CheckLevel(const Topology& topology, std::size_t index) {
  const LinkLevel& level = topology.levels[index];
  const LinkLevel* const before = index == 0 ? nullptr : &topology.levels[index - 1];
  if (before == nullptr && level.shared) {
    return RefuseLevel(
        level, "links",
        ": the innermost ones belong to one rank each; share the links of an outer level");
  }
  if (before != nullptr && before->ranks == LinkLevel::kAllRanks) {
    return RefuseLevel(*before, "ranks", ": it connects all ranks already; give their number");
  }
  for (const auto& [name, value] :
       {std::pair("latency", level.latency), std::pair("bandwidth", level.bandwidth)}) {
    if (std::isfinite(value) && value >= 0) continue;
    return RefuseLevel(level, name, "{}: give a number of at least 0", value);
  }
  if (level.ranks < 1) return RefuseLevel(level, "ranks", "{}: give at least 1", level.ranks);
  if (before == nullptr || level.ranks == LinkLevel::kAllRanks) return {};
  if (level.ranks > before->ranks && level.ranks % before->ranks == 0) return {};
  return RefuseLevel(level, "ranks",
                     "{}: they are not several groups of level {}, of {} ranks each", level.ranks,
                     Quote(before->name), before->ranks);
}

Status CheckTopology(const Topology& topology) {
  for (std::size_t level = 0; level < topology.levels.size(); ++level) {
    PENSTOCK_TRY_STATUS(CheckLevel(topology, level));
  }
  return {};
}

Status CheckTopology(const Topology& topology, int ranks) {
  PENSTOCK_TRY_STATUS(CheckTopology(topology));
  if (topology.empty() || topology.levels.back().ranks >= ranks) return {};
  return InvalidParameter("topology", ": it connects {} ranks, the schedule has {}; add a level",
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
