#include "schedule/pricing/collective_time.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// The links of a level: they connect `groups` groups of `below` members each.
struct Tier {
  int below = 1;
  int groups = 1;
  double latency = 0;
  double time_per_byte = 0;

  int members() const { return below * groups; }
  double Time(double bytes) const { return latency + bytes * time_per_byte; }
};
using Tiers = std::vector<Tier>;

// Returns the levels that the members use.
Tiers TiersOf(const CollectiveGroup& group) {
  Tiers tiers;
  int below = 1;
  for (const LinkLevel& level : group.links.levels) {
    const int members = std::min(level.ranks, group.members);
    if (members == below) continue;
    const double time_per_byte = level.bandwidth > 0 ? 1 / level.bandwidth : 0;
    tiers.push_back({below, members / below, level.latency, time_per_byte});
    below = members;
  }
  return tiers;
}

// Returns the time of a step in which each member sends `bytes` to the one `distance` after it,
// modulo the members. Some messages cross each level with groups larger than the way around the
// ring, in its shorter direction.
double TimeOfShift(const Tiers& tiers, int distance, double bytes) {
  const int way = std::min(distance, tiers.back().members() - distance);
  double longest = 0;
  for (const Tier& tier : tiers) {
    if (way < tier.members()) longest = std::max(longest, tier.Time(bytes));
  }
  return longest;
}

double DirectTime(const Tiers& tiers, double bytes) {
  double longest = 0;
  for (const Tier& tier : tiers) {
    const double receivers = tier.members() - tier.below;
    longest = std::max(longest, tier.Time(receivers * bytes / tiers.back().members()));
  }
  return longest;
}

// Calls step(distance) for 1, 2, 4, ... below the number of members.
template <class StepTime>
double SumOfDoublings(int members, const StepTime& step) {
  double time = 0;
  for (std::int64_t distance = 1; distance < members; distance *= 2) {
    time += step(static_cast<int>(distance));
  }
  return time;
}

// With a power of two, members exchange blocks with the one whose number differs in one bit: all
// pairs then use the same level. Otherwise, each sends to the one `distance` before it.
double TreeGatherTime(const Tiers& tiers, double bytes) {
  const int members = tiers.back().members();
  const double block = bytes / members;
  if (!std::has_single_bit(static_cast<unsigned>(members))) {
    return SumOfDoublings(members, [&](int distance) {
      return TimeOfShift(tiers, distance, std::min(distance, members - distance) * block);
    });
  }
  return SumOfDoublings(members, [&](int distance) {
    const auto tier =
        std::ranges::find_if(tiers, [&](const Tier& t) { return distance < t.members(); });
    return tier->Time(distance * block);
  });
}

double GatherTime(CollectiveAlgorithm algorithm, const Tiers& tiers, double bytes) {
  const int members = tiers.back().members();
  double time = 0;
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return (members - 1) * TimeOfShift(tiers, 1, bytes / members);
    case CollectiveAlgorithm::kTree:
      return TreeGatherTime(tiers, bytes);
    case CollectiveAlgorithm::kHierarchical:
      for (const Tier& tier : tiers) time += (tier.groups - 1) * tier.Time(bytes / tier.members());
      return time;
    default:
      return DirectTime(tiers, bytes);
  }
}

}  // namespace

Result<CollectiveAlgorithm> ParseCollectiveAlgorithm(const std::string& text) {
  const auto& names = kCollectiveAlgorithmNames;
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<CollectiveAlgorithm>(found - names.begin());
  return InvalidArgument("{}: give ring, tree, hierarchical, direct or auto{}", Quote(text),
                         Suggestion(text, {names.begin(), names.end()}));
}

Status CheckGroup(const CollectiveGroup& group) {
  if (group.members < 1) {
    return InvalidParameter("replicas", "{}: give at least 1", group.members);
  }
  PENSTOCK_TRY_STATUS(CheckTopology(group.links));
  int connected = 1;
  for (const LinkLevel& level : group.links.levels) {
    if (level.shared || level.half_duplex) {
      return InvalidParameter("levels",
                              ": level {}: each replica has links of its own in both directions",
                              Quote(level.name));
    }
    connected = std::min(level.ranks, group.members);
    if (group.members % connected == 0) continue;
    return InvalidParameter("replicas", "{}: they are not whole groups of the {} of level {}",
                            group.members, level.ranks, Quote(level.name));
  }
  if (connected == group.members) return {};
  return InvalidParameter("levels", ": they connect {} of {} replicas; add a level", connected,
                          group.members);
}

double AllGatherTime(CollectiveAlgorithm algorithm, const CollectiveGroup& group, double bytes) {
  if (group.members <= 1 || bytes == 0) return 0;
  const Tiers tiers = TiersOf(group);
  if (algorithm != CollectiveAlgorithm::kAuto) return GatherTime(algorithm, tiers, bytes);
  double shortest = std::numeric_limits<double>::infinity();
  for (const CollectiveAlgorithm each :
       {CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree, CollectiveAlgorithm::kHierarchical,
        CollectiveAlgorithm::kDirect}) {
    shortest = std::min(shortest, GatherTime(each, tiers, bytes));
  }
  return shortest;
}

// A reduce-scatter sends the messages of an all-gather in the opposite direction and order.
double ReduceScatterTime(CollectiveAlgorithm algorithm, const CollectiveGroup& group,
                         double bytes) {
  return AllGatherTime(algorithm, group, bytes);
}

}  // namespace penstock
