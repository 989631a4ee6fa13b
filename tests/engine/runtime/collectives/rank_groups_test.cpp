#include "runtime/collectives/rank_groups.h"

#include <gtest/gtest.h>

#include "tests/engine/runtime/collectives/rank_group_conformance.h"
#include "tests/engine/tcp/tcp_loopback.h"

namespace penstock {

std::vector<RankGroupCase> TestedRankGroups() {
  return {{"local"},
          {"one_process", 1},
          {"two_processes", 2},
          {"a_process_per_rank", 5},
          {"two_processes_by_tcp", 2, MakeTcpLoopback},
          {"a_process_per_rank_by_tcp", 5, MakeTcpLoopback}};
}

namespace {

TEST(RankGroupsTest, MembersAreChecked) {
  const auto message = [](std::vector<int> members) {
    const LocalRanks half = LocalRanks::Split(4, 2, 0).value();
    const auto made = MakeRankGroups({{"g", std::move(members)}}, half, nullptr);
    return made ? std::string() : made.error().line();
  };
  EXPECT_EQ(message({0, 1}), "");
  EXPECT_EQ(message({}), "group 'g' has no ranks");
  EXPECT_EQ(message({0, 4}), "group 'g': rank 4 is not one of the 4 ranks of the run");
  EXPECT_EQ(message({1, 0, 1}), "group 'g': rank 1 is in it twice");
  EXPECT_EQ(message({0, 2}),
            "group 'g': rank 2 is on another process, but the processes are not connected");
}

// Process 2 has no rank of the first group, and still agrees on the channels of the others.
TEST(RankGroupsTest, ProcessesWithoutMembersTakePart) {
  const RankGroupCase three{"three", 3};
  TestedGroups groups(three, 3, {{"two", {0, 1}}, {"all", {2, 1, 0}}});
  std::vector<std::thread> threads;
  std::vector<std::int64_t> sums = {1, 2, 4};
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      RankGroup& end = groups.end(2 - rank, 1);
      const Bytes sum = std::as_writable_bytes(std::span(&sums[Index(rank)], 1));
      EXPECT_TRUE(end.Wait(end.AllReduce(sum, sum, ElementType::kInt64).value()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(3, 7));
}

}  // namespace
}  // namespace penstock
