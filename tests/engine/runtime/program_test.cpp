#include "runtime/program.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"

namespace penstock {
namespace {

std::vector<Part> Parts(const Program& program) {
  std::vector<Part> parts;
  for (const ProgramEntry& entry : program) parts.push_back(entry.part);
  return parts;
}

Schedule OneRank(Lane lane, int microbatches) {
  Schedule schedule;
  schedule.placement = Placement::FromRanks({0}, 1).value();
  schedule.microbatches = microbatches;
  schedule.lanes = {std::move(lane)};
  return schedule;
}

TEST(ProgramTest, PairsAreTwoEntriesAndStepsComeLast) {
  const Schedule schedule =
      OneRank({Forward(0, 0), Overlap(Forward(0, 1), Backward(0, 0)), Backward(0, 1)}, 2);
  const Program program = MakeProgram(schedule, 0).value();
  EXPECT_EQ(Parts(program),
            (std::vector<Part>{Forward(0, 0).first, Forward(0, 1).first, Backward(0, 0).first,
                               Backward(0, 1).first, MakeAction(Op::kStep, 0).first}));
  EXPECT_EQ(program[1].position, 1);
  EXPECT_EQ(program[2].position, 1);
  for (std::size_t i = 0; i < program.size(); ++i) EXPECT_EQ(program[i].ends_pair, i == 2) << i;
  EXPECT_EQ(program[4].position, -1);
}

TEST(ProgramTest, KeepsTheStepsOfTheSchedule) {
  const Schedule schedule = OneRank({Forward(0, 0), Backward(0, 0), MakeAction(Op::kStep, 0)}, 1);
  const Program program = MakeProgram(schedule, 0).value();
  ASSERT_EQ(program.size(), 3U);
  EXPECT_EQ(program[2].position, 2);
}

TEST(ProgramTest, LoweredScheduleHasTheSameProgram) {
  Schedule schedule = SmallGpipe(2, 1);
  const Program compute = MakeProgram(schedule, 0).value();
  schedule.lanes[0] = {Forward(0, 0), MakeAction(Op::kSendForward, 0, 0),
                       MakeAction(Op::kRecvBackward, 0, 0), Backward(0, 0)};
  EXPECT_EQ(Parts(MakeProgram(schedule, 0).value()), Parts(compute));
}

TEST(ProgramTest, RefusesInvalidActionsAndRanks) {
  Schedule other_rank = SmallGpipe(2, 1);
  other_rank.lanes[0].push_back(Forward(1, 0));
  Schedule no_such_microbatch = SmallGpipe(2, 1);
  no_such_microbatch.lanes[0].push_back(Forward(0, 1));
  Schedule lane_missing = SmallGpipe(2, 1);
  lane_missing.lanes.pop_back();
  for (const Schedule& bad : {other_rank, no_such_microbatch, lane_missing}) {
    EXPECT_TRUE(Refused(MakeProgram(bad, 0), "", ErrorCode::kInvalidArgument));
  }
  EXPECT_TRUE(Contains(MakeProgram(other_rank, 0).error().line(), "1F0"));
  EXPECT_FALSE(MakeProgram(SmallGpipe(2, 1), 2));
}

// Messages may arrive in any order because each has its own slot, one sender and one receiver.
TEST(MessageMapTest, EveryMessageHasOneSlotOneSenderOneReceiver) {
  Random random(1);
  for (int i = 0; i < 50; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const MessageMap messages(schedule);
    std::multiset<int> sent;
    std::multiset<int> received;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const Program program = MakeProgram(schedule, rank).value();
      for (const ProgramEntry& entry : program) {
        if (const int slot = messages.OutSlot(entry.part); slot >= 0) {
          ASSERT_LT(slot, messages.slots());
          EXPECT_EQ(messages.from_rank(slot), rank);
          EXPECT_EQ(messages.Slot(messages.ValueOf(slot)), slot);
          sent.insert(slot);
        }
        if (const int slot = messages.InSlot(entry.part); slot >= 0) {
          EXPECT_EQ(messages.to_rank(slot), rank);
          received.insert(slot);
        }
      }
    }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(std::set<int>(sent.begin(), sent.end()).size(), sent.size());
    const int edges = (schedule.placement.chain_length() - 1) * schedule.placement.replicas();
    EXPECT_EQ(static_cast<int>(sent.size()), 2 * edges * schedule.indices());
  }
}

}  // namespace
}  // namespace penstock
