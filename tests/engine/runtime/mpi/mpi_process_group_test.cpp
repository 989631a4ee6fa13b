#include "runtime/mpi/mpi_process_group.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/engine/runtime/collectives/rank_group_conformance.h"
#include "tests/engine/runtime/transports/transport_conformance.h"

namespace penstock {

std::vector<TransportCase> TestedTransports() {
  return {{"processes", 2, MakeMpiLoopback}, {"bytes", 2, MakeMpiLoopback}};
}

std::vector<RankGroupCase> TestedRankGroups() {
  return {{"two_processes", 2, MakeMpiLoopback}, {"a_process_per_rank", 5, MakeMpiLoopback}};
}

namespace {

TEST(MpiProcessGroupTest, FramesOfOneSenderArriveInOrderWhateverTheirSize) {
  const auto groups = MakeMpiLoopback(3);
  constexpr int kFrames = 200;
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<std::promise<bool>> all_in_order(3);
  std::vector<std::vector<int>> seen(3, std::vector<int>(3));  // by receiver and sender
  const auto bytes_of = [](int frame) { return std::size_t(frame % 7) * 40'000; };
  for (const auto& group : groups) {
    const int to = group->process();
    channels.push_back(std::make_unique<Channel>(*group));
    channels.back()->Open(
        [&, to](int from, const FrameTag& tag, const Message& message) {
          const int frame = seen[to][from]++;
          EXPECT_EQ(tag.number, frame);
          EXPECT_EQ(message.bytes(), bytes_of(frame));
          int sum = 0;
          for (const int count : seen[to]) sum += count;
          if (sum == 2 * kFrames) all_in_order[to].set_value(true);
        },
        nullptr);
  }
  for (int frame = 0; frame < kFrames; ++frame) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (to == from) continue;
        channels[from]->Send(to, {0, 0, frame}, AllocateMessage(bytes_of(frame)));
      }
    }
  }
  for (auto& done : all_in_order) EXPECT_TRUE(done.get_future().get());
}

}  // namespace
}  // namespace penstock
