#include "runtime/transports/threads.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/runtime/probe_stage.h"
#include "tests/runtime/random_schedule.h"

namespace penstock {
namespace {

// Two ranks, one edge each way, `microbatches` slots an edge.
struct TwoRanks {
  explicit TwoRanks(int microbatches = 2, std::optional<int> spin = 0)
      : schedule(SmallGpipe(2, microbatches)), messages(schedule), transport(messages, {spin}) {}

  int Slot(int row) const { return messages.Slot({ValueKind::kActivation, 0, row}); }
  Message Make(int row, std::int64_t step = 0) const {
    return MakePayload(ValueKind::kActivation, 0, row, step);
  }

  Schedule schedule;
  MessageMap messages;
  ThreadTransport transport;
};

int RowOf(const Message& message) { return static_cast<ProbePayload*>(message.data())->row; }
std::int64_t StepOf(const Message& message) {
  return static_cast<ProbePayload*>(message.data())->step;
}

TEST(ThreadTransportTest, HandsOverTheVeryMessageInAnyOrder) {
  TwoRanks two;
  Message first = two.Make(0);
  const void* const data = first.data();
  two.transport.Send(two.Slot(0), 0, std::move(first));
  two.transport.Send(two.Slot(1), 0, two.Make(1));
  Message got;
  ASSERT_TRUE(two.transport.Receive(two.Slot(1), 0, got));
  EXPECT_EQ(RowOf(got), 1);
  ASSERT_TRUE(two.transport.Receive(two.Slot(0), 0, got));
  EXPECT_EQ(got.data(), data);
}

TEST(ThreadTransportTest, AWaitingReceiverIsWokenByItsMessageAlone) {
  for (const int spin : {0, 100}) {
    TwoRanks two(2, spin);
    std::atomic<bool> second_sent{false};
    std::thread receiver([&] {
      Message got;
      EXPECT_TRUE(two.transport.Receive(two.Slot(1), 0, got));
      EXPECT_TRUE(second_sent.load());
      EXPECT_EQ(RowOf(got), 1);
    });
    two.transport.Send(two.Slot(0), 0, two.Make(0));
    second_sent.store(true);
    two.transport.Send(two.Slot(1), 0, two.Make(1));
    receiver.join();
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

// Forwards only: nothing but the slots holds the sender back. No message is lost or overwritten.
TEST(ThreadTransportTest, ASenderNeverOverwritesAnOlderRound) {
  constexpr int kRounds = 2000;
  for (const int spin : {0, 1000}) {
    TwoRanks two(3, spin);
    std::thread sender([&] {
      for (int round = 0; round < kRounds; ++round) {
        for (int row = 0; row < 3; ++row) {
          two.transport.Send(two.Slot(row), round, two.Make(row, round));
        }
      }
    });
    int wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int row = 2; row >= 0; --row) {
        Message got;
        ASSERT_TRUE(two.transport.Receive(two.Slot(row), round, got));
        if (RowOf(got) != row || StepOf(got) != round) ++wrong;
      }
    }
    sender.join();
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST(ThreadTransportTest, AbortWakesReceiversAndSendersAndTheFirstReasonWins) {
  TwoRanks two(1);
  two.transport.Send(two.Slot(0), 0, two.Make(0));
  std::thread sender([&] { two.transport.Send(two.Slot(0), 1, two.Make(0, 1)); });
  std::thread receiver([&] {
    Message got;
    EXPECT_FALSE(two.transport.Receive(two.messages.Slot({ValueKind::kGradient, 1, 0}), 0, got));
    EXPECT_TRUE(got.empty());
  });
  EXPECT_FALSE(two.transport.aborted());
  two.transport.Abort({ErrorCode::kUnavailable, "first"});
  two.transport.Abort({ErrorCode::kInternal, "second"});
  sender.join();
  receiver.join();
  EXPECT_TRUE(two.transport.aborted());
  EXPECT_EQ(two.transport.reason().message, "first");
  EXPECT_EQ(two.transport.reason().code, ErrorCode::kUnavailable);
}

TEST(ThreadTransportTest, EveryMessageIsReleasedOnceWhateverBecomesOfIt) {
  {
    TwoRanks two(2);
    two.transport.Send(two.Slot(0), 0, two.Make(0));  // stays in its slot
    two.transport.Abort({ErrorCode::kUnavailable, "over"});
    two.transport.Send(two.Slot(0), 1, two.Make(0));  // dropped
    EXPECT_EQ(live_payloads.load(), 1);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

}  // namespace
}  // namespace penstock
