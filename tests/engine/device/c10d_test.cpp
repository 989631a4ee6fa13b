// Tensors of the device between processes that groups of c10d connect: no memory of the host, and
// no access that an event does not order.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/index.h"
#include "graph/device/device_queue.h"
#include "runtime/transports/transports.h"
#include "tests/engine/c10d/board.h"
#include "tests/engine/device/device.h"
#include "tests/engine/device/drop_each.h"
#include "tests/engine/runtime/random_schedule.h"
#include "train/message/tensor_message.h"

namespace penstock::testing {
namespace {

constexpr int kRounds = 6;

// Sends two tensors per round from one process to another, which adds them. Returns the sums.
std::vector<at::Tensor> SumsOfRounds() {
  const Schedule schedule = SmallGpipe(2, 1);
  const MessageMap messages(schedule);
  const int there = messages.Slot({ValueKind::kActivation, 0, 0});
  auto groups = MakeC10dLoopback(2, kTestDevice);
  const auto end = [&](int process) {
    const LocalRanks local = LocalRanks::Split(2, 2, process).value();
    return MakeTransport("processes", {messages, local, groups[Index(process)].get()}).value();
  };
  const std::unique_ptr<Transport> from = end(0), to = end(1);
  std::thread sender([&] {
    const DeviceQueue queue(kTestDevice);
    queue.Enter();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<at::Tensor> tensors = {at::full({64, 8}, round, at::device(kTestDevice)),
                                         at::full({5}, 2, at::device(kTestDevice))};
      for (int i = 0; i < 8; ++i) tensors[0] = tensors[0] + 1;
      from->Send(there, round, ToMessage(tensors));
    }
    queue.Synchronize();
  });
  std::vector<at::Tensor> sums;
  std::thread receiver([&] {
    const DeviceQueue queue(kTestDevice);
    queue.Enter();
    const std::vector<TensorType> types = {{at::kFloat, {64, 8}, {}}, {at::kFloat, {5}, {}}};
    for (int round = 0; round < kRounds; ++round) {
      Message message;
      ASSERT_TRUE(to->Receive(there, round, message));
      EXPECT_FALSE(DeviceTensors(message).empty());
      std::vector<at::Tensor> tensors(2);
      FromMessage(std::move(message), types, tensors, kTestDevice);
      sums.push_back(tensors[0].sum() + tensors[1].sum());
    }
    queue.Synchronize();
    for (at::Tensor& sum : sums) sum = sum.cpu();
  });
  sender.join();
  receiver.join();
  return sums;
}

TEST(TensorsBetweenProcesses, AreOrderedByEvents) {
  for (const std::uint32_t seed : {1, 2, 3, 4}) {
    SetDelays(seed % 2 == 0 ? 0 : 300, seed);
    TakeReport();
    const std::vector<at::Tensor> sums = SumsOfRounds();
    ASSERT_EQ(sums.size(), Index(kRounds));
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_EQ(sums[Index(round)].item<float>(), 512.0F * static_cast<float>(round + 8) + 10);
    }
    const DeviceReport report = TakeReport();
    EXPECT_TRUE(report.races.empty()) << report.races.front();
  }
  SetDelays(0, 0);
}

TEST(TensorsBetweenProcesses, NeedEveryWait) {
  const auto [waits, missed] = DropEach(DropWait, SumsOfRounds);
  EXPECT_EQ(waits, missed);
  EXPECT_GE(waits,
            kRounds);  // of the edges and of the receiving rank, as far as they order something
}

// The sender keeps a message until it is sent, so the uses of its edge are recorded needlessly.
TEST(TensorsBetweenProcesses, NeedTheUsesOfTheReceiver) {
  const auto [uses, missed] = DropEach(DropRecordedUse, SumsOfRounds);
  EXPECT_LE(missed, uses);
  EXPECT_GE(missed, kRounds);
}

}  // namespace
}  // namespace penstock::testing
