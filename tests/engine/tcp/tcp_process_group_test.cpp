#include "tcp/tcp_process_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/engine/tcp/tcp_loopback.h"

namespace penstock {
namespace {

// Counts and checks the frames that one process receives: frame i of each sender has number i and
// bytes_of(i) bytes, each of them i.
class FrameCounter {
 public:
  FrameCounter(ProcessGroup& group, std::function<std::size_t(int frame)> bytes_of)
      : bytes_of_(std::move(bytes_of)), seen_(group.processes()), channel_(group) {
    channel_.Open(
        [this](int from, const FrameTag& tag, const Message& message) {
          const int frame = seen_[from]++;
          const std::string expected(bytes_of_(frame), static_cast<char>(frame));
          if (tag.number != frame || TextOf(message) != expected) wrong_.fetch_add(1);
          frames_.fetch_add(1);
          frames_.notify_all();
        },
        [this](const Error& reason) { aborted_.set_value(reason); });
  }

  void Send(int to, int frame) {
    channel_.Send(to, {0, 0, frame},
                  CopyToMessage(std::string(bytes_of_(frame), static_cast<char>(frame))));
  }
  // Waits for so many frames. Returns whether all were as expected.
  bool Await(int frames) {
    for (int now = frames_.load(); now < frames; now = frames_.load()) frames_.wait(now);
    return wrong_.load() == 0;
  }
  Error AbortReason() { return aborted_.get_future().get(); }

 private:
  const std::function<std::size_t(int frame)> bytes_of_;
  std::vector<int> seen_;  // by sender
  std::atomic<int> frames_{0}, wrong_{0};
  std::promise<Error> aborted_;
  Channel channel_;
};

class TcpFramesTest
    : public testing::TestWithParam<std::vector<std::unique_ptr<ProcessGroup>> (*)(int processes)> {
};
INSTANTIATE_TEST_SUITE_P(PlainAndAuthenticated, TcpFramesTest,
                         testing::Values(MakeTcpLoopback, MakeAuthenticatedLoopback));

TEST_P(TcpFramesTest, MessageOfManyPartsArrivesAsPacked) {
  std::promise<void> released;
  std::promise<Message> arrived;
  const auto groups = GetParam()(2);
  std::vector<std::vector<int>> owned;
  std::vector<MessagePart> parts;
  for (int i = 0; i < 300; ++i) owned.emplace_back(i * 50 % 7001, i);
  for (std::vector<int>& each : owned) parts.push_back({each.data(), each.size() * sizeof(int)});
  const std::size_t bytes = Message(parts, nullptr, [](void*) {}).bytes();
  Channel sends(*groups[0]), receives(*groups[1]);
  receives.Open([&](int, const FrameTag&, Message got) { arrived.set_value(std::move(got)); },
                nullptr);
  sends.Send(1, {}, Message(parts, &released, [](void* owner) {
               static_cast<std::promise<void>*>(owner)->set_value();
             }));
  const Message got = arrived.get_future().get();
  ASSERT_EQ(got.bytes(), bytes);
  // The bytes between parts have no defined values.
  std::size_t end = 0;
  for (const MessagePart& part : parts) {
    const std::size_t begin = Message::Align(end);
    EXPECT_TRUE(TextOf(got).substr(begin, part.bytes) ==
                std::string_view(static_cast<const char*>(part.data), part.bytes));
    end = begin + part.bytes;
  }
  released.get_future().get();
}

// The other process sends all the time, so that frames to a process that has ended are in flight.
TEST(TcpProcessGroupTest, NoFrameIsLostIfTheSenderEndsAtOnce) {
  for (int i = 0; i < 5; ++i) {
    auto groups = MakeTcpLoopback(2);
    constexpr int kFrames = 100;
    const auto bytes_of = [](int frame) { return std::size_t(frame) * 3'000; };
    FrameCounter stays(*groups[0], bytes_of);
    std::atomic<bool> stop{false};
    std::thread sends([&] {
      for (int frame = 0; !stop.load(); ++frame) stays.Send(1, frame % 2);
    });
    {
      FrameCounter leaves(*groups[1], bytes_of);
      for (int frame = 0; frame < kFrames; ++frame) leaves.Send(0, frame);
      groups[1]->Leave();
    }
    groups[1].reset();
    EXPECT_TRUE(stays.Await(kFrames));
    EXPECT_FALSE(groups[0]->aborted());
    stop.store(true);
    sends.join();
  }
}

TEST(TcpProcessGroupTest, SendingDoesNotWaitForTheReceiver) {
  std::promise<void> sent;
  const auto groups = MakeTcpLoopback(2);
  Channel sends(*groups[0]), receives(*groups[1]);
  std::atomic<int> received{0};
  receives.Open(
      [&](int, const FrameTag&, const Message&) {
        if (received.fetch_add(1) == 0) sent.get_future().get();
        received.notify_all();
      },
      nullptr);
  constexpr int kFrames = 100;
  for (int i = 0; i < kFrames; ++i) sends.Send(1, {}, AllocateMessage(1 << 20));
  sent.set_value();
  for (int now = received.load(); now < kFrames; now = received.load()) received.wait(now);
}

TEST(TcpProcessGroupTest, NoFileStaysOpen) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (int i = 0; i < 5; ++i) MakeTcpLoopback(4);
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace penstock
