// The places of WAIT_SENDs in small schedules; tests/schedules/simulate has random ones.
#include <gtest/gtest.h>

#include "schedule/passes/pass_table.h"
#include "schedule/validate/receive_slots.h"
#include "tests/results.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

std::string WaitSends(const Schedule& schedule, std::optional<int> budget) {
  const Schedule result = ValueOf(AddWaitSends(schedule, {budget}));
  EXPECT_EQ(FirstFault(result), "");
  return WriteCsv(result);
}

TEST(WaitSend, FollowsWhatProvesTheReceipt) {
  EXPECT_EQ(WaitSends(Make("1f1b", {2, 1, 3}), {}),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0F2,0SEND_F2,0RECV_B1,0B1,"
            "0RECV_B2,0WAIT_SEND_F1,0B2,0WAIT_SEND_F2\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1RECV_F2,1SEND_B1,1F2,1WAIT_SEND_B0,1B2,"
            "1SEND_B2,1WAIT_SEND_B1,1WAIT_SEND_B2\n");
}

TEST(WaitSend, PrecedesASendThatExceedsTheBudget) {
  EXPECT_EQ(WaitSends(Make("gpipe", {2, 1, 3}), 1),
            "0F0,0SEND_F0,0F1,0WAIT_SEND_F0,0SEND_F1,0F2,0WAIT_SEND_F1,0SEND_F2,0RECV_B2,0B2,"
            "0RECV_B1,0WAIT_SEND_F2,0B1,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2,1B2,1SEND_B2,1B1,1WAIT_SEND_B2,1SEND_B1,1B0,"
            "1WAIT_SEND_B1,1SEND_B0,1WAIT_SEND_B0\n");
}

TEST(WaitSend, RefusesABudgetThatNoOrderSatisfies) {
  const Schedule crossed =
      ValueOf(ParseCsv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
                       "1RECV_F1,1F1,1RECV_F0,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n"));
  EXPECT_TRUE(Refused(AddWaitSends(crossed, {.budget = 1}),
                      "rank 0, position 3 (0SEND_F1): 1 SENDs of the rank are in flight",
                      ErrorCode::kInfeasible));
  EXPECT_EQ(FirstFault(ValueOf(AddWaitSends(crossed, {.budget = 2}))), "");
  EXPECT_TRUE(Refused(AddWaitSends(crossed, {.budget = 0}), "a budget of 0 SENDs",
                      ErrorCode::kInvalidArgument));
}

TEST(WaitSend, LeavesWaitsThatExist) {
  const Schedule once = ValueOf(AddWaitSends(Make("zbv", {3, 2, 6}), {.budget = 2}));
  EXPECT_EQ(ValueOf(AddWaitSends(once, {.budget = 1})).lanes, once.lanes);
}

TEST(ReceiveSlots, AreAsManyAsMicrobatchesInFlight) {
  const Schedule schedule = AddCommunication(Make("1f1b", {4, 1, 8}));
  const ReceiveSlots slots = AssignReceiveSlots(schedule);
  EXPECT_TRUE(CheckReceiveSlots(schedule, slots));
  EXPECT_EQ(slots.count[0], (std::array{0, 1}));
  EXPECT_EQ(slots.count[3][1], 0);
  for (const std::size_t rank : {1, 2, 3}) {
    EXPECT_GE(slots.count[rank][0], 4 - static_cast<int>(rank));
    EXPECT_LE(slots.count[rank][0], 5 - static_cast<int>(rank)) << "one more is posted early";
  }
}

TEST(ReceiveSlots, RefusesTwoMessagesInOneSlot) {
  const Schedule schedule = AddCommunication(Make("gpipe", {2, 1, 2}));
  ReceiveSlots slots = AssignReceiveSlots(schedule);
  EXPECT_TRUE(CheckReceiveSlots(schedule, slots));
  ReceiveSlots shared = slots;
  for (int& slot : shared.slots[1]) slot = std::min(slot, 0);
  EXPECT_TRUE(Refused(CheckReceiveSlots(schedule, shared),
                      "rank 1, position 2, 1RECV_F1: 1RECV_F0 still occupies slot 0",
                      ErrorCode::kInvalidArgument));
  slots.slots[1][0] = 7;
  EXPECT_TRUE(Refused(CheckReceiveSlots(schedule, slots), "none has the number 7",
                      ErrorCode::kInvalidArgument));
  EXPECT_FALSE(CheckReceiveSlots(schedule, {}));
}

}  // namespace
}  // namespace penstock::testing
