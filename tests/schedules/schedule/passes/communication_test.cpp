#include <gtest/gtest.h>

#include <map>

#include "schedule/passes/passes.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

// A message as both of its ends identify it: the RECV and the two ranks.
struct End {
  int peer;
  bool sends;
  Part receive;
};

End EndOf(const Placement& placement, const Part& part) {
  const bool sends = part.op == Op::kSendForward || part.op == Op::kSendBackward;
  const bool to_next = part.op == Op::kSendForward || part.op == Op::kRecvBackward;
  const int other = to_next ? placement.next(part.stage) : placement.previous(part.stage);
  Part receive = part;
  if (sends) {
    receive =
        MakeAction(to_next ? Op::kRecvForward : Op::kRecvBackward, other, part.microbatch).first;
  }
  return {placement.rank_of(other), sends, receive};
}

// Runs the lanes as a transport without buffers does: a SEND and its RECV meet, or both wait.
bool RunsByRendezvous(const Schedule& schedule) {
  std::vector<std::size_t> at(schedule.lanes.size());
  const auto skip_compute = [&](std::size_t rank) {
    const Lane& lane = schedule.lanes[rank];
    while (at[rank] < lane.size() && !IsCommunication(lane[at[rank]].first.op)) ++at[rank];
    return at[rank] < lane.size();
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < at.size(); ++rank) {
      if (!skip_compute(rank)) continue;
      const End mine = EndOf(schedule.placement, schedule.lanes[rank][at[rank]].first);
      const std::size_t peer = mine.peer;
      if (!skip_compute(peer)) continue;
      const End other = EndOf(schedule.placement, schedule.lanes[peer][at[peer]].first);
      if (other.peer != static_cast<int>(rank) || other.sends == mine.sends) continue;
      if (!(other.receive == mine.receive)) continue;
      ++at[rank];
      ++at[peer];
      progress = true;
    }
  }
  for (std::size_t rank = 0; rank < at.size(); ++rank) {
    if (skip_compute(rank)) return false;
  }
  return true;
}

Schedule ComputeOnly(Schedule schedule) {
  for (Lane& lane : schedule.lanes) {
    lane.erase(std::remove_if(lane.begin(), lane.end(),
                              [](const Action& a) { return IsCommunication(a.first.op); }),
               lane.end());
  }
  return schedule;
}

TEST(AddCommunication, AddsEveryEdgeOnceWithoutDeadlocks) {
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved"}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (const int microbatches : {1, 2, 3, 5, 8, 13}) {
        const Schedule plain = Make(name, {ranks, 0, microbatches});
        for (const Schedule& schedule : {plain, SplitBackwards(plain), PairWherePossible(plain)}) {
          const Schedule lowered = AddCommunication(schedule);
          const std::string where = fmt::format("{} p={} m={}", name, ranks, microbatches);
          // The validator requires the SEND and the RECV of every edge, and no others.
          EXPECT_EQ(FirstFault(lowered), "") << where;
          EXPECT_TRUE(RunsByRendezvous(lowered)) << where;
          EXPECT_EQ(ComputeOnly(lowered).lanes, schedule.lanes) << where;
          EXPECT_EQ(AddCommunication(lowered).lanes, lowered.lanes) << where;
        }
      }
    }
  }
}

TEST(AddCommunication, EachPairOfRanksAgreesOnTheOrder) {
  const Schedule lowered = AddCommunication(Make("interleaved", {4, 3, 10}));
  std::map<std::pair<int, int>, std::vector<std::string>> sent, received;
  for (int rank = 0; rank < lowered.ranks(); ++rank) {
    for (const Action& action : lowered.lanes[rank]) {
      if (!IsCommunication(action.first.op)) continue;
      const End end = EndOf(lowered.placement, action.first);
      (end.sends ? sent[{rank, end.peer}] : received[{end.peer, rank}])
          .push_back(ToText(end.receive));
    }
  }
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(sent, received);
}

TEST(AddCommunication, EdgesInsideARankAreFree) {
  for (const Lane& lane : AddCommunication(Make("interleaved", {1, 4, 3})).lanes) {
    for (const Action& action : lane) EXPECT_TRUE(IsCompute(action)) << ToText(action);
  }
  // On the vee the last rank passes chunk 0 to chunk 1 itself.
  auto vee = ParseCsv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
  ASSERT_TRUE(vee);
  EXPECT_EQ(WriteCsv(AddCommunication(*vee)),
            "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n");
}

TEST(AddCommunication, OtherActionsKeepTheirPlaces) {
  auto schedule = ParseCsv(
      "0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD,0STEP\n"
      "1UNSHARD,1F0,1B0,1RESHARD,1REDUCE_GRAD,1STEP\n");
  ASSERT_TRUE(schedule);
  ASSERT_EQ(FirstFault(*schedule), "");
  const Schedule lowered = AddCommunication(*schedule);
  EXPECT_EQ(FirstFault(lowered), "");
  EXPECT_EQ(ComputeOnly(lowered).lanes, schedule->lanes);
}

TEST(AddCommunication, SupportsSequenceSlicesAndReplicas) {
  auto slices = ParseCsv("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", {.slices = 2});
  ASSERT_TRUE(slices);
  EXPECT_EQ(FirstFault(AddCommunication(*slices)), "");
  auto replicas = ParseCsv("0F0,3F0,3B0,0B0\n2F0,1F0,1B0,2B0\n", {.replicas = 2});
  ASSERT_TRUE(replicas);
  ASSERT_EQ(FirstFault(*replicas), "");
  const Schedule lowered = AddCommunication(*replicas);
  EXPECT_EQ(FirstFault(lowered), "");
  EXPECT_EQ(lowered.action_count(), 8U + 8U);
}

TEST(AddCommunication, DeadlockThrowsInternalError) {
  auto schedule = ParseCsv("0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n");
  ASSERT_TRUE(schedule);
  EXPECT_THROW(AddCommunication(*schedule), InternalError);
}

}  // namespace
}  // namespace penstock::testing
