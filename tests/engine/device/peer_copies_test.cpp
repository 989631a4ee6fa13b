// Messages between ranks on two devices of a process: copies that events order, and no host.
#include "graph/device/peer_copies.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "base/index.h"
#include "tests/engine/device/device.h"
#include "tests/engine/device/drop_each.h"
#include "train/message/tensor_message.h"

namespace penstock::testing {
namespace {

constexpr int kMessages = 6;
constexpr int kElements = 512;

// In each round, a rank on the first device computes two tensors, and one on the second device adds
// them. Returns the sums.
std::vector<float> SumsOfMessages() {
  const DeviceQueue sender(kTestDevice), receiver(kSecondTestDevice);
  PeerCopies peers(kSecondTestDevice);
  const std::vector<TensorType> types = {{at::kFloat, {kElements}, {}}, {at::kFloat, {5}, {}}};
  std::vector<at::Tensor> sums;
  for (int round = 0; round < kMessages; ++round) {
    Message message;
    {
      const DeviceScope scope(sender);
      std::vector<at::Tensor> tensors = {at::full({kElements}, round, at::device(kTestDevice)),
                                         at::full({5}, 2, at::device(kTestDevice))};
      for (int i = 0; i < 8; ++i) tensors[0] = tensors[0] + 1;
      message = ToMessage(tensors);
    }
    const DeviceScope scope(receiver);
    std::vector<at::Tensor> tensors(2);
    FromMessage(std::move(message), types, tensors, kSecondTestDevice, &peers);
    for (const at::Tensor& tensor : tensors) EXPECT_EQ(tensor.device(), kSecondTestDevice);
    sums.push_back(tensors[0].sum() + tensors[1].sum());
  }
  EXPECT_EQ(c10::impl::VirtualGuardImpl(kTestDevice.type()).getDevice(), kTestDevice);
  std::vector<float> found;
  const DeviceScope scope(receiver);
  for (const at::Tensor& sum : sums) found.push_back(sum.item<float>());
  return found;
}

TEST(PeerCopies, AreOrderedByEvents) {
  for (const std::uint32_t seed : {1, 2, 3, 4}) {
    SetDelays(seed % 2 == 0 ? 0 : 300, seed);
    TakeReport();
    const std::vector<float> sums = SumsOfMessages();
    for (int round = 0; round < kMessages; ++round) {
      EXPECT_EQ(sums[Index(round)], static_cast<float>(kElements * (round + 8) + 10));
    }
    const DeviceReport report = TakeReport();
    EXPECT_TRUE(report.races.empty()) << report.races.front();
    EXPECT_EQ(report.host_operations.size(), Index(kMessages));  // the reads of the sums
  }
  SetDelays(0, 0);
}

TEST(PeerCopies, NeedEachWait) {
  const auto [waits, reported] = DropEach(DropWait, SumsOfMessages);
  EXPECT_EQ(waits, reported);
  EXPECT_EQ(waits, 2 * kMessages);  // of the copies for the sender, and of the receiver for them
}

// What the last round uses, no other one overwrites.
TEST(PeerCopies, NeedEachUse) {
  const auto [uses, reported] = DropEach(DropRecordedUse, SumsOfMessages);
  EXPECT_EQ(uses, 4 * kMessages);  // of two tensors and of their copies
  EXPECT_GE(reported, uses - 4);
}

TEST(PeerCopies, AreNeededBetweenDevices) {
  const DeviceScope scope{DeviceQueue(kTestDevice)};
  std::vector<at::Tensor> tensors = {at::ones({4}, at::device(kTestDevice))};
  Message message = ToMessage(tensors);
  EXPECT_THROW(FromMessage(std::move(message), std::vector<TensorType>{{at::kFloat, {4}, {}}},
                           tensors, kSecondTestDevice),
               InternalError);
}

}  // namespace
}  // namespace penstock::testing
