// Formulas of collectives against algorithms that move their blocks step by step.
#include "schedule/pricing/collective_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/index.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr CollectiveAlgorithm kAlgorithms[] = {
    CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree, CollectiveAlgorithm::kHierarchical,
    CollectiveAlgorithm::kDirect};

std::vector<CollectiveGroup> Groups() {
  std::vector<CollectiveGroup> groups;
  for (const int members : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 32}) {
    groups.push_back({members, {{{"all", LinkLevel::kAllRanks, 0.5, 8}}}});
  }
  const auto add = [&](int members, std::vector<LinkLevel> levels) {
    groups.push_back({members, {std::move(levels)}});
  };
  for (const int members : {2, 4, 8, 12, 16, 20, 32}) {
    add(members,
        {{"node", members % 4 == 0 ? 4 : 2, 0.1, 20}, {"net", LinkLevel::kAllRanks, 1, 3}});
    // Links that get faster outward, and latencies that shrink.
    add(members, {{"node", 2, 2, 1}, {"net", LinkLevel::kAllRanks, 0.25, 7}});
  }
  add(24, {{"board", 3, 0.1, 0}, {"node", 6, 0.3, 5}, {"net", LinkLevel::kAllRanks, 0.7, 2}});
  add(24, {{"board", 2, 0.5, 4}, {"node", 8, 0, 9}, {"rack", 24, 0.2, 0}});
  add(64, {{"slot", 1, 9, 1}, {"board", 4, 0.1, 30}, {"node", 8, 0.2, 10}, {"net", 64, 0.3, 2}});
  return groups;
}

// A block has the number of the member that it comes from.
struct Message {
  int from = 0, to = 0;
  std::vector<int> blocks;
};

// Members that hold blocks, and the time of the steps so far.
class Members {
 public:
  Members(const CollectiveGroup& group, double block)
      : group_(group), block_(block), held_(Index(group.members)) {
    for (int member = 0; member < group.members; ++member) held_[Index(member)] = {member};
  }

  // All messages leave at once. A member's messages over the same level share its link.
  void Step(const std::vector<Message>& messages) {
    std::map<std::pair<int, std::size_t>, double> sent, received;
    for (const Message& message : messages) {
      for (const int block : message.blocks) {
        EXPECT_TRUE(held_[Index(message.from)].contains(block)) << "sends what it does not hold";
      }
      const std::size_t level = group_.links.LevelOf(message.from, message.to);
      sent[{message.from, level}] += static_cast<double>(message.blocks.size()) * block_;
      received[{message.to, level}] += static_cast<double>(message.blocks.size()) * block_;
    }
    double longest = 0;
    for (const auto* links : {&sent, &received}) {
      for (const auto& [link, bytes] : *links) {
        const LinkLevel& level = group_.links.levels[link.second];
        const double transfer = level.bandwidth > 0 ? bytes / level.bandwidth : 0;
        longest = std::max(longest, level.latency + transfer);
      }
    }
    time_ += longest;
    for (const Message& message : messages) {
      held_[Index(message.to)].insert(message.blocks.begin(), message.blocks.end());
    }
  }

  const std::set<int>& Of(int member) const { return held_[Index(member)]; }
  double time() const { return time_; }

 private:
  const CollectiveGroup& group_;
  const double block_;
  std::vector<std::set<int>> held_;
  double time_ = 0;
};

void RingGather(Members& members, int count) {
  for (int step = 0; step + 1 < count; ++step) {
    std::vector<Message> messages;
    for (int m = 0; m < count; ++m) {
      messages.push_back({m, (m + 1) % count, {(m - step + count) % count}});
    }
    members.Step(messages);
  }
}

void TreeGather(Members& members, int count) {
  const bool is_power = (count & (count - 1)) == 0;
  for (int distance = 1; distance < count; distance *= 2) {
    std::vector<Message> messages;
    for (int m = 0; m < count; ++m) {
      Message message{m, is_power ? m ^ distance : (m - distance + count) % count, {}};
      for (const int block : members.Of(m)) {
        if (!members.Of(message.to).contains(block)) message.blocks.push_back(block);
      }
      messages.push_back(message);
    }
    members.Step(messages);
  }
}

// Rings among the members that differ only in their group of the level, from the outermost level.
void HierarchicalGather(Members& members, const CollectiveGroup& group) {
  std::vector<int> sizes = {1};
  for (const LinkLevel& level : group.links.levels) {
    sizes.push_back(std::min(level.ranks, group.members));
  }
  for (std::size_t level = sizes.size() - 1; level > 0; --level) {
    const int below = sizes[level - 1], size = sizes[level], rings = size / below;
    std::vector<std::vector<int>> last(Index(group.members));
    for (int m = 0; m < group.members; ++m) {
      last[Index(m)].assign(members.Of(m).begin(), members.Of(m).end());
    }
    for (int step = 0; step + 1 < rings; ++step) {
      std::vector<Message> messages;
      std::vector<std::vector<int>> next(last.size());
      for (int m = 0; m < group.members; ++m) {
        const int to = m / size * size + (m % size + below) % size;
        messages.push_back({m, to, last[Index(m)]});
        next[Index(to)] = last[Index(m)];
      }
      members.Step(messages);
      last = next;
    }
  }
}

void DirectGather(Members& members, int count) {
  std::vector<Message> messages;
  for (int m = 0; m < count; ++m) {
    for (int to = 0; to < count; ++to) {
      if (to != m) messages.push_back({m, to, {m}});
    }
  }
  members.Step(messages);
}

double GatherByBlocks(CollectiveAlgorithm algorithm, const CollectiveGroup& group, double bytes) {
  Members members(group, bytes / group.members);
  if (algorithm == CollectiveAlgorithm::kRing) RingGather(members, group.members);
  if (algorithm == CollectiveAlgorithm::kTree) TreeGather(members, group.members);
  if (algorithm == CollectiveAlgorithm::kHierarchical) HierarchicalGather(members, group);
  if (algorithm == CollectiveAlgorithm::kDirect && group.members > 1) {
    DirectGather(members, group.members);
  }
  for (int m = 0; m < group.members; ++m) EXPECT_EQ(members.Of(m).size(), Index(group.members));
  return members.time();
}

TEST(CollectiveTime, IsThatOfMovingTheBlocks) {
  for (const CollectiveGroup& group : Groups()) {
    ASSERT_TRUE(CheckGroup(group)) << CheckGroup(group).error().line();
    for (const CollectiveAlgorithm algorithm : kAlgorithms) {
      SCOPED_TRACE(std::to_string(group.members) + " members, " + group.links.levels.front().name +
                   ", algorithm " + std::to_string(static_cast<int>(algorithm)));
      for (const double bytes : {0.5, 60.0, 1e4}) {
        const double gather = GatherByBlocks(algorithm, group, bytes);
        EXPECT_NEAR(AllGatherTime(algorithm, group, bytes), gather, 1e-9 * gather);
        EXPECT_EQ(ReduceScatterTime(algorithm, group, bytes),
                  AllGatherTime(algorithm, group, bytes));
      }
    }
  }
}

// Every member receives all blocks but its own, at most at the sum of its links.
TEST(CollectiveTime, IsAtLeastThatOfTheBytes) {
  for (const CollectiveGroup& group : Groups()) {
    double bandwidth = 0;
    for (const LinkLevel& level : group.links.levels) {
      bandwidth += level.bandwidth > 0 ? level.bandwidth : 1e30;
    }
    const double n = group.members, bytes = 100;
    for (const CollectiveAlgorithm algorithm : kAlgorithms) {
      EXPECT_GE(AllGatherTime(algorithm, group, bytes) * (1 + 1e-9),
                bytes * (n - 1) / n / bandwidth);
    }
  }
}

TEST(CollectiveTime, OfOneLevelWithoutLatencyIsThatOfTheBytes) {
  const CollectiveGroup group{8, {{{"node", LinkLevel::kAllRanks, 0, 2}}}};
  for (const CollectiveAlgorithm algorithm : kAlgorithms) {
    EXPECT_DOUBLE_EQ(AllGatherTime(algorithm, group, 80), 80.0 * 7 / 8 / 2);
  }
}

TEST(CollectiveTime, AutoIsTheFastest) {
  for (const CollectiveGroup& group : Groups()) {
    for (const double bytes : {0.01, 1.0, 1e3, 1e6}) {
      std::vector<double> gathers;
      for (const CollectiveAlgorithm algorithm : kAlgorithms) {
        gathers.push_back(AllGatherTime(algorithm, group, bytes));
      }
      EXPECT_EQ(AllGatherTime(CollectiveAlgorithm::kAuto, group, bytes),
                *std::ranges::min_element(gathers));
    }
  }
}

TEST(CollectiveTime, OfOneMemberOrNoBytesIsZero) {
  const CollectiveGroup one{1, {{{"node", 8, 1, 1}}}}, many{8, {{{"node", 8, 1, 1}}}};
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::kRing, CollectiveAlgorithm::kAuto}) {
    EXPECT_EQ(AllGatherTime(algorithm, one, 100), 0);
    EXPECT_EQ(AllGatherTime(algorithm, many, 0), 0);
  }
}

TEST(CollectiveTime, RefusesGroupsThatLinksDoNotFit) {
  const auto refused = [](int members, std::vector<LinkLevel> levels) {
    return LineOf(CheckGroup({members, {std::move(levels)}}));
  };
  EXPECT_NE(refused(0, {{"node"}}).find("replicas 0"), std::string::npos);
  EXPECT_NE(refused(8, {}).find("add a level"), std::string::npos);
  EXPECT_NE(refused(16, {{"node", 8}}).find("8 of 16"), std::string::npos);
  EXPECT_TRUE(Contains(refused(12, {{"node", 8}, {"net"}}),
                       "replicas 12: they are not whole groups of the 8 of level 'node'"));
  EXPECT_TRUE(
      Contains(refused(16, {{"node", 8}, {"net", LinkLevel::kAllRanks, 0, 1, true}}), "'net'"));
  EXPECT_TRUE(ParseCollectiveAlgorithm("hierarchical"));
  EXPECT_NE(ParseCollectiveAlgorithm("rign").error().line().find("'ring'"), std::string::npos);
}

}  // namespace
}  // namespace penstock
