// How ranks are connected, and how they exchange messages.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// One level of a hierarchy of links: within a node, between the nodes of a rack, ...
struct LinkLevel {
  static constexpr int kAllRanks = std::numeric_limits<int>::max();

  std::string name;
  int ranks = kAllRanks;  // consecutive ranks that this level and those before it connect
  double latency = 0;     // from the last byte that leaves until it can be used, in units of time
  double bandwidth = 0;   // of a link, in bytes per unit of time; 0: unlimited
  // Whether each group of the level before has one link, which its ranks share, or each rank has
  // its own. Links of the first level are never shared.
  bool shared = false;
  bool half_duplex = false;  // whether the two directions share the bandwidth
};

// A message between two ranks takes a link of the sender and one of the receiver, both of the first
// level that connects the two. Messages that use a link at the same time share it equally.
struct Topology {
  std::vector<LinkLevel> levels;  // by increasing ranks

  bool empty() const { return levels.empty(); }
  // Returns the first level that connects the two. Requires: a level connects them.
  std::size_t LevelOf(int from, int to) const;
  // Returns the group of the level before, or the rank, that owns the rank's link of this level.
  int OwnerOf(std::size_t level, int rank) const;
  // Returns the time of a message that shares no link, between the ranks for which it is longest.
  double LongestTime(int ranks, double bytes) const;
};

// Refuses a level that does not connect more ranks than the one before, or groups that cannot be
// made of whole groups of it, shared links of the first level, and values that are negative or not
// finite. The error is about `ranks`, `latency`, `bandwidth` or `links` of the level. Requires:
// index < levels.size(), and the levels before it pass.
Status CheckLevel(const Topology& topology, std::size_t index);
Status CheckTopology(const Topology& topology);
// Also refuses a topology that does not connect all ranks.
Status CheckTopology(const Topology& topology, int ranks);

// What a rank does while its messages are in flight.
enum class Transfers {
  kAsynchronous,  // continues at once
  // Waits after each action until its results have arrived.
  kBlocking,
  // Sends and receives only between two actions: a message leaves when its sender and its receiver
  // are both between actions, and both wait until it has arrived. So do Megatron-LM and
  // torch.distributed when they wait for what batch_isend_irecv returns.
  kBatched,
};

inline constexpr std::array<std::string_view, 3> kTransfersNames = {"asynchronous", "blocking",
                                                                    "batched"};
// Reads one of these. Errors: kInvalidArgument, with the nearest name.
Result<Transfers> ParseTransfers(const std::string& text);

}  // namespace penstock
