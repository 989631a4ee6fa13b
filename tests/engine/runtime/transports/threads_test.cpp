#include "runtime/transports/threads.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"

namespace penstock {
namespace {

// Two ranks with one edge in each direction and `microbatches` slots per edge.
struct RankPair {
  explicit RankPair(int microbatches = 2, std::optional<int> spin = 0)
      : schedule(SmallGpipe(2, microbatches)), messages(schedule), transport(messages, {spin}) {}

  int Slot(int microbatch) const { return messages.Slot({ValueKind::kActivation, 0, microbatch}); }
  Message Make(int microbatch, std::int64_t step = 0) const {
    return MakePayload(ValueKind::kActivation, 0, microbatch, step);
  }

  Schedule schedule;
  MessageMap messages;
  ThreadTransport transport;
};

int MicrobatchOf(const Message& message) {
  return static_cast<ProbePayload*>(message.data())->microbatch;
}
std::int64_t StepOf(const Message& message) {
  return static_cast<ProbePayload*>(message.data())->step;
}

TEST(ThreadTransportTest, HandsOverMessagesInAnyOrderWithoutACopy) {
  RankPair two;
  Message first = two.Make(0);
  const void* const data = first.data();
  two.transport.Send(two.Slot(0), 0, std::move(first));
  two.transport.Send(two.Slot(1), 0, two.Make(1));
  Message got;
  ASSERT_TRUE(two.transport.Receive(two.Slot(1), 0, got));
  EXPECT_EQ(MicrobatchOf(got), 1);
  ASSERT_TRUE(two.transport.Receive(two.Slot(0), 0, got));
  EXPECT_EQ(got.data(), data);
}

TEST(ThreadTransportTest, OnlyItsOwnMessageWakesAReceiver) {
  for (const int spin : {0, 100}) {
    RankPair two(2, spin);
    std::atomic<bool> second_sent{false};
    std::thread receiver([&] {
      Message got;
      EXPECT_TRUE(two.transport.Receive(two.Slot(1), 0, got));
      EXPECT_TRUE(second_sent.load());
      EXPECT_EQ(MicrobatchOf(got), 1);
    });
    two.transport.Send(two.Slot(0), 0, two.Make(0));
    second_sent.store(true);
    two.transport.Send(two.Slot(1), 0, two.Make(1));
    receiver.join();
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

// With forwards only, the sender waits only for free slots. No message is lost or overwritten.
TEST(ThreadTransportTest, SenderNeverOverwritesAnOlderRound) {
  constexpr int kRounds = 2000;
  for (const int spin : {0, 1000}) {
    RankPair two(3, spin);
    std::thread sender([&] {
      for (int round = 0; round < kRounds; ++round) {
        for (int microbatch = 0; microbatch < 3; ++microbatch) {
          two.transport.Send(two.Slot(microbatch), round, two.Make(microbatch, round));
        }
      }
    });
    int wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int microbatch = 2; microbatch >= 0; --microbatch) {
        Message got;
        ASSERT_TRUE(two.transport.Receive(two.Slot(microbatch), round, got));
        if (MicrobatchOf(got) != microbatch || StepOf(got) != round) ++wrong;
      }
    }
    sender.join();
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST(ThreadTransportTest, AbortWakesSendersAndReceiversAndKeepsTheFirstReason) {
  RankPair two(1);
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

TEST(ThreadTransportTest, EveryMessageIsReleasedExactlyOnce) {
  {
    RankPair two(2);
    two.transport.Send(two.Slot(0), 0, two.Make(0));  // stays in its slot
    two.transport.Abort({ErrorCode::kUnavailable, "over"});
    two.transport.Send(two.Slot(0), 1, two.Make(0));  // dropped
    EXPECT_EQ(live_payloads.load(), 1);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

}  // namespace
}  // namespace penstock
