// Times of collectives by the alpha-beta model: a message takes its link's latency, plus its bytes
// over the link's bandwidth, and a member sends and receives at the same time.
//
// Algorithms and formulas follow Thakur, Rabenseifner and Gropp, Optimization of Collective
// Communication Operations in MPICH, 2005. NCCL's all-gather and reduce-scatter are rings, too. Its
// all-reduce by double binary trees has the latencies and bytes of kTree, up to a part of 1/members
// of the bytes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "schedule/topology.h"

namespace penstock {

enum class CollectiveAlgorithm {
  kRing,  // a block to the next member in each step; an all-to-all exchanges pairwise
  // Recursive doubling or halving, or Bruck's algorithm if the members are not a power of two; an
  // all-to-all always takes the latter.
  kTree,
  // A ring in each group of the innermost level, then one across these groups for each member's
  // shard, and so on. An all-gather begins with the outermost level.
  kHierarchical,
  kDirect,  // each member sends to all others at once
  kAuto,    // the fastest of these
};

// In the order of CollectiveAlgorithm.
inline constexpr std::array<std::string_view, 5> kCollectiveAlgorithmNames = {
    "ring", "tree", "hierarchical", "direct", "auto"};

// Reads one of these names. Errors: kInvalidArgument, with the nearest name.
Result<CollectiveAlgorithm> ParseCollectiveAlgorithm(const std::string& text);

// The members of a collective. `ranks` of a level counts members, and each member has one link of
// its own in each direction of each level.
struct CollectiveGroup {
  int members = 1;
  Topology links;
};

// Refuses a group without members, links that do not connect them or are shared, and levels whose
// members are not whole groups.
Status CheckGroup(const CollectiveGroup& group);

// Return the time until all members have their results; 0 for a single member or no bytes. `bytes`
// is the size of the vector that each member has after an all-gather or before a reduce-scatter.
// Require: CheckGroup succeeds, and bytes >= 0.
double AllGatherTime(CollectiveAlgorithm algorithm, const CollectiveGroup& group, double bytes);
double ReduceScatterTime(CollectiveAlgorithm algorithm, const CollectiveGroup& group, double bytes);

}  // namespace penstock
