// What the conformance suite does not know of: a receiver may poll, and a message is not copied.
#include "runtime/transports/threads.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"

namespace penstock {
namespace {

// With forwards only, the sender waits only for free slots. No message is lost or overwritten, and
// only its own message wakes a receiver.
TEST(ThreadTransportTest, HandsOverEveryMessageWithAndWithoutPolling) {
  constexpr int kRounds = 2000, kMicrobatches = 3;
  const Schedule schedule = SmallGpipe(2, kMicrobatches);
  const MessageMap messages(schedule);
  const auto slot = [&](int microbatch) {
    return messages.Slot({ValueKind::kActivation, 0, microbatch});
  };
  for (const int spin : {0, 100, 1000}) {
    ThreadTransport transport(messages, {spin});
    std::thread sender([&] {
      for (int round = 0; round < kRounds; ++round) {
        for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
          transport.Send(slot(microbatch), round,
                         MakePayload(ValueKind::kActivation, 0, microbatch, round));
        }
      }
    });
    int wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int microbatch = kMicrobatches - 1; microbatch >= 0; --microbatch) {
        Message got;
        ASSERT_TRUE(transport.Receive(slot(microbatch), round, got));
        const auto* payload = static_cast<const ProbePayload*>(got.data());
        if (payload->self != payload || payload->microbatch != microbatch ||
            payload->step != round) {
          ++wrong;
        }
      }
    }
    sender.join();
    EXPECT_EQ(wrong, 0);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

}  // namespace
}  // namespace penstock
