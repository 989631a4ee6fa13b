// What every transport guarantees.
#include "tests/engine/runtime/transports/transport_conformance.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "runtime/executor/run.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/text/text.h"
#include "tests/engine/runtime/expect_idle.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/processes/on_processes.h"

namespace penstock {
namespace {

std::vector<TransportCase> RemoteTransports() {
  std::vector<TransportCase> remote = TestedTransports();
  std::erase_if(remote, [](const TransportCase& tested) { return tested.processes == 1; });
  return remote;
}

std::string CaseName(const testing::TestParamInfo<TransportCase>& info) {
  return info.param.name + std::to_string(info.param.processes) + info.param.connected_by;
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformance, testing::ValuesIn(TestedTransports()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Transports, RemoteTransportConformance,
                         testing::ValuesIn(RemoteTransports()), CaseName);

Message Number(std::int64_t number) {
  Message message = AllocateMessage(sizeof(number));
  std::memcpy(message.data(), &number, sizeof(number));
  return message;
}

std::int64_t NumberOf(const Message& message) {
  std::int64_t number = -1;
  if (message.bytes() == sizeof(number)) std::memcpy(&number, message.data(), sizeof(number));
  return number;
}

TEST_P(TransportConformance, MessagesOfARoundCanBeReceivedInAnyOrder) {
  TwoRanks two(GetParam());
  two.end(0).Send(two.There(1), 0, Number(11));
  two.end(0).Send(two.There(0), 0, Number(10));
  two.end(1).Send(two.Back(0), 0, Number(20));
  Message got;
  ASSERT_TRUE(two.end(1).Receive(two.There(0), 0, got));
  EXPECT_EQ(NumberOf(got), 10);
  ASSERT_TRUE(two.end(1).Receive(two.There(1), 0, got));
  EXPECT_EQ(NumberOf(got), 11);
  ASSERT_TRUE(two.end(0).Receive(two.Back(0), 0, got));
  EXPECT_EQ(NumberOf(got), 20);
}

TEST_P(TransportConformance, ReceiveWaitsOnlyForItsOwnMessage) {
  TwoRanks two(GetParam());
  std::atomic<bool> sent{false};
  std::thread receiver([&] {
    Message got;
    EXPECT_TRUE(two.end(1).Receive(two.There(1), 0, got));
    EXPECT_TRUE(sent.load());
    EXPECT_EQ(NumberOf(got), 1);
    EXPECT_TRUE(two.end(1).Receive(two.There(0), 0, got));
    EXPECT_EQ(NumberOf(got), 0);
  });
  two.end(0).Send(two.There(0), 0, Number(0));
  sent.store(true);
  two.end(0).Send(two.There(1), 0, Number(1));
  receiver.join();
}

// The sender waits only for free slots.
TEST_P(TransportConformance, SenderOneRoundAheadOverwritesNothing) {
  constexpr int kRounds = 500;
  constexpr int kSlots = 3;
  TwoRanks two(GetParam(), kSlots);
  std::atomic<int> received{0};  // whole rounds
  int ahead = 0;
  std::thread sender([&] {
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kSlots; ++i) {
        two.end(0).Send(two.There(i), round, Number(round * kSlots + i));
        ahead = std::max(ahead, round - received.load());
      }
    }
  });
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = kSlots - 1; i >= 0; --i) {
      Message got;
      ASSERT_TRUE(two.end(1).Receive(two.There(i), round, got));
      if (NumberOf(got) != round * kSlots + i) ++wrong;
    }
    received.store(round + 1);
  }
  sender.join();
  EXPECT_EQ(wrong, 0);
  // One round is in the slots, and the receiver may not have counted another one yet.
  EXPECT_LE(ahead, 2);
}

TEST_P(TransportConformance, LargeAndEmptyMessagesArriveWhole) {
  TwoRanks two(GetParam(), 3);
  std::vector<std::uint32_t> large(std::size_t{12} << 20);  // 48 MiB
  std::iota(large.begin(), large.end(), 7U);
  std::vector<char> small = {1, 2, 3};
  const MessagePart parts[] = {
      {small.data(), small.size()}, {nullptr, 0}, {large.data(), large.size() * sizeof(large[0])}};
  const auto nothing = [](void*) {};
  two.end(0).Send(two.There(0), 0, Message(parts, &large, nothing));
  two.end(0).Send(two.There(1), 0, Message(std::span<const MessagePart>(), &large, nothing));
  two.end(0).Send(two.There(2), 0, AllocateMessage(0));
  Message got;
  ASSERT_TRUE(two.end(1).Receive(two.There(0), 0, got));
  Message expected = Packed(Message(parts, &large, nothing));
  if (got.parts().size() > 1) got = Packed(got);
  ASSERT_EQ(got.bytes(), expected.bytes());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.data()) % Message::kAlign, 0U);
  const std::size_t begin = Message::Align(small.size());
  EXPECT_EQ(std::memcmp(got.data(), small.data(), small.size()), 0);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(got.data()) + begin, large.data(),
                        large.size() * sizeof(large[0])),
            0);
  for (const int i : {1, 2}) {
    ASSERT_TRUE(two.end(1).Receive(two.There(i), 0, got));
    EXPECT_FALSE(got.empty());
    EXPECT_EQ(got.bytes(), 0U);
  }
}

TEST_P(TransportConformance, EveryMessageIsReleasedExactlyOnce) {
  const auto payload = [] { return MakePayload(ValueKind::kActivation, 0, 0, 0); };
  {
    TwoRanks two(GetParam());
    two.end(0).Send(two.There(0), 0, payload());
    two.end(0).Send(two.There(1), 0, payload());  // stays in its slot
    Message got;
    ASSERT_TRUE(two.end(1).Receive(two.There(0), 0, got));
    two.end(0).Abort({ErrorCode::kUnavailable, "over"});
    two.end(0).Send(two.There(0), 1, payload());  // dropped
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST_P(TransportConformance, AbortOnEitherSideEndsEveryWaitWithTheFirstReason) {
  for (const int aborting : {0, 1}) {
    TwoRanks two(GetParam(), 1);
    two.end(0).Send(two.There(0), 0, Number(0));
    std::thread sender([&] { two.end(0).Send(two.There(0), 1, Number(1)); });
    std::thread receiver([&] {
      Message got;
      Message kept;
      EXPECT_TRUE(two.end(1).Receive(two.There(0), 0, kept) || two.end(1).aborted());
      EXPECT_FALSE(two.end(1).Receive(two.There(0), 2, got));  // never sent
      EXPECT_TRUE(got.empty());
    });
    EXPECT_FALSE(two.end(aborting).aborted());
    two.end(aborting).Abort({ErrorCode::kDeadlineExceeded, "first"});
    two.end(aborting).Abort({ErrorCode::kInternal, "second"});
    sender.join();
    receiver.join();
    Message got;
    EXPECT_FALSE(two.end(0).Receive(two.Back(0), 0, got));
    for (const int rank : {0, 1}) {
      ASSERT_TRUE(two.end(rank).aborted());
      EXPECT_EQ(two.end(rank).reason().code, ErrorCode::kDeadlineExceeded);
      EXPECT_EQ(two.end(rank).reason().message, "first");
      two.end(rank).Send(rank == 0 ? two.There(0) : two.Back(0), 3, Number(3));  // does not wait
    }
  }
}

TEST_P(TransportConformance, WaitingUsesNoCpu) {
  TwoRanks two(GetParam());
  std::atomic<bool> waits{false};
  std::thread receiver([&] {
    waits.store(true);
    Message got;
    EXPECT_TRUE(two.end(1).Receive(two.There(0), 0, got));
  });
  ExpectIdle(receiver, waits);
  two.end(0).Send(two.There(0), 0, Number(0));
  receiver.join();
}

TEST_P(TransportConformance, RunsAnySchedule) {
  Random random(31);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const int processes = std::min(GetParam().processes, schedule.ranks());
    const int steps = Uniform(random, 1, 4);
    const auto groups = GetParam().make_processes(processes);
    const MessageMap messages(schedule);
    OnEachProcess(groups, [&](ProcessGroup& group) {
      Probes probes(schedule);
      const LocalRanks ranks =
          LocalRanks::Split(schedule.ranks(), processes, group.process()).value();
      for (int stage = 0; stage < schedule.stages(); ++stage) {
        if (ranks.has(schedule.placement.rank_of(stage))) continue;
        probes.stages[stage] = nullptr;
      }
      const auto transport = MakeTransport(GetParam().name, {messages, ranks, &group}).value();
      RunOptions options = {
          .steps = steps, .ranks = &ranks, .group = &group, .transport = transport.get()};
      const Status status = RunRanks(schedule, probes.stages, options);
      EXPECT_TRUE(status) << status.error().line();
      for (int rank = 0; rank < schedule.ranks(); ++rank) {
        const auto& calls = probes.logs[rank].calls;
        EXPECT_EQ(calls,
                  ranks.has(rank) ? ExpectedCalls(schedule, rank, steps) : std::vector<Part>());
      }
    });
    EXPECT_EQ(live_payloads.load(), 0);
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
}

// Frame i of each sender has number i. Its size depends on the number, and all its bytes are i.
TEST_P(RemoteTransportConformance, FramesOfOneSenderArriveInOrderWhateverTheirSize) {
  constexpr int kFrames = 100;
  const auto frame = [](int number) {
    return std::string(std::size_t(number % 7) * 40'000 + number % 3, static_cast<char>(number));
  };
  const auto groups = GetParam().make_processes(3);
  std::vector<std::vector<int>> seen(3, std::vector<int>(3));  // by receiver and sender
  std::vector<std::atomic<int>> received(3);
  std::vector<std::unique_ptr<Channel>> channels;
  for (const auto& group : groups) {
    const int to = group->process();
    channels.push_back(std::make_unique<Channel>(*group));
    channels.back()->Open(
        [&, to](int from, const FrameTag& tag, const Message& message) {
          EXPECT_EQ(tag.number, seen[to][from]);
          EXPECT_TRUE(TextOf(message) == frame(seen[to][from]++));
          received[to].fetch_add(1);
          received[to].notify_all();
        },
        nullptr);
  }
  for (int number = 0; number < kFrames; ++number) {
    for (int from = 0; from < 3; ++from) {
      for (const int distance : {1, 2}) {
        channels[from]->Send((from + distance) % 3, {0, 0, number}, CopyToMessage(frame(number)));
      }
    }
  }
  for (std::atomic<int>& count : received) {
    for (int now = count.load(); now < 2 * kFrames; now = count.load()) count.wait(now);
  }
}

TEST_P(RemoteTransportConformance, LostPeerEndsEveryWait) {
  TwoRanks two(GetParam(), 1);
  two.end(0).Send(two.There(0), 0, Number(0));
  std::thread waiting([&] {
    two.end(0).Send(two.There(0), 1, Number(1));  // waits for rank 1, which receives nothing
    Message got;
    EXPECT_FALSE(two.end(0).Receive(two.Back(0), 0, got));
  });
  two.EndLastProcess();
  waiting.join();
  ASSERT_TRUE(two.end(0).aborted());
  EXPECT_EQ(two.end(0).reason().code, ErrorCode::kUnavailable);
  EXPECT_EQ(two.end(0).reason().message,
            "process 1 is gone: it has ended or its connection is broken");
}

}  // namespace
}  // namespace penstock
