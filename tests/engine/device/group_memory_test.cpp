// Collectives on the device: between ranks of a process, and between processes that groups of c10d
// connect. The sums have the bits of those on the CPU, and events order all accesses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/index.h"
#include "runtime/collectives/rank_groups.h"
#include "tests/engine/c10d/board.h"
#include "tests/engine/device/device.h"
#include "tests/engine/device/drop_each.h"
#include "train/message/device_group_memory.h"

namespace penstock::testing {
namespace {

constexpr int kPieceElements = 64;  // of each rank's part

Bytes MemoryOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// What a rank gives to the collectives of a round.
at::Tensor InputOf(const RankGroup& end, int round, c10::Device device) {
  at::Tensor input =
      at::arange(1, end.ranks() * kPieceElements + 1, at::device(device).dtype(at::kFloat));
  for (int i = 0; i < 4; ++i) input = input * 1.37F + static_cast<float>(end.rank() + round) / 3;
  return input;
}

// The collectives of a rank. Each uses what the rank's stream has computed just before, and the
// stream uses its output right after the wait for it.
class OneOfEach {
 public:
  OneOfEach(RankGroup& end, int round, c10::Device device)
      : end_(end), input_(InputOf(end, round, device)) {}

  // All of them in flight at a time, or one after another.
  std::vector<at::Tensor> Run(bool at_once) {
    using enum CollectiveKind;
    std::vector<RankGroup::Ticket> tickets;
    for (const CollectiveKind kind :
         {kAllGather, kReduceScatter, kAllReduce, kAllToAll, kBroadcast, kReduce}) {
      tickets.push_back(Start(kind));
      if (!at_once) Wait(tickets.back(), outputs_.back());
    }
    if (at_once) {
      for (std::size_t i = 0; i < tickets.size(); ++i) Wait(tickets[i], outputs_[i]);
    }
    return std::move(outputs_);
  }

 private:
  RankGroup::Ticket Start(CollectiveKind kind) {
    const at::Tensor piece = input_.narrow(0, 0, kPieceElements) * 2;
    const at::Tensor whole = input_ + 1;
    inputs_.push_back(
        kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduce ? piece : whole);
    const at::Tensor& input = inputs_.back();
    at::Tensor output = at::zeros_like(
        kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kReduce ? piece : whole);
    outputs_.push_back(output);
    const Bytes to = MemoryOf(output);
    switch (kind) {
      case CollectiveKind::kAllGather:
        return end_.AllGather(MemoryOf(input), to).value();
      case CollectiveKind::kReduceScatter:
        return end_.ReduceScatter(MemoryOf(input), to, ElementType::kFloat32).value();
      case CollectiveKind::kAllReduce:
        inputs_.back() = outputs_.back() = input.to(at::kBFloat16);
        return end_
            .AllReduce(MemoryOf(inputs_.back()), MemoryOf(outputs_.back()), ElementType::kBfloat16)
            .value();
      case CollectiveKind::kAllToAll:
        return end_.AllToAll(MemoryOf(input), to).value();
      case CollectiveKind::kBroadcast:
        output += input;
        return end_.Broadcast(to, 1).value();
      default:
        return end_.Reduce(MemoryOf(input), to, ElementType::kFloat32, 0).value();
    }
  }
  void Wait(RankGroup::Ticket ticket, at::Tensor& output) {
    EXPECT_TRUE(end_.Wait(ticket));
    output = output + 1;
    input_ = input_ + output.sum().to(at::kFloat) * 1e-6F;
  }

  RankGroup& end_;
  at::Tensor input_;
  std::vector<at::Tensor> inputs_, outputs_;
};

struct RanksAndProcesses {
  int ranks, processes;
};
void PrintTo(const RanksAndProcesses& of, std::ostream* out) {
  *out << of.ranks << " ranks, " << of.processes << " processes";
}

class CollectivesOnDevice : public ::testing::TestWithParam<RanksAndProcesses> {
 protected:
  ~CollectivesOnDevice() override { SetDelays(0, 0); }

  static constexpr int kRoundsAtOnce = 2;

  // Returns the outputs of all ranks, on the CPU.
  static std::vector<at::Tensor> Run(c10::Device device, bool at_once, int rounds = kRoundsAtOnce) {
    const auto [ranks, processes] = GetParam();
    std::vector<std::unique_ptr<ProcessGroup>> groups(1);
    if (processes > 1) groups = MakeC10dLoopback(processes, device);
    const std::vector<std::unique_ptr<RankGroup>> ends = MakeEnds(groups, device);
    std::vector<std::vector<at::Tensor>> outputs(Index(ranks));
    std::vector<std::thread> threads;
    for (const auto& end : ends) {
      threads.emplace_back([&, device, at_once, rounds] {
        std::optional<DeviceQueue> queue;
        if (!device.is_cpu()) queue.emplace(device).Enter();
        for (int round = 0; round < rounds; ++round) {
          for (at::Tensor& output : OneOfEach(*end, round, device).Run(at_once)) {
            outputs[Index(end->rank())].push_back(std::move(output));
          }
        }
        if (queue) queue->Synchronize();
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<at::Tensor> all;
    for (const auto& of : outputs) {
      for (const at::Tensor& output : of) all.push_back(output.cpu());
    }
    return all;
  }

 private:
  static std::vector<std::unique_ptr<RankGroup>> MakeEnds(
      const std::vector<std::unique_ptr<ProcessGroup>>& groups, c10::Device device) {
    const auto [ranks, processes] = GetParam();
    RankGroupMembers all{"all", std::vector<int>(Index(ranks))};
    std::iota(all.ranks.begin(), all.ranks.end(), 0);
    std::vector<std::unique_ptr<RankGroup>> ends;
    for (int process = 0; process < processes; ++process) {
      const LocalRanks local = LocalRanks::Split(ranks, processes, process).value();
      all.memory = GroupMemoryOn(device);
      auto made = MakeRankGroups({all}, local, groups[Index(process)].get()).value();
      for (auto& end : made.front()) {
        if (end) ends.push_back(std::move(end));
      }
    }
    return ends;
  }
};
INSTANTIATE_TEST_SUITE_P(Processes, CollectivesOnDevice,
                         ::testing::Values(RanksAndProcesses{4, 1}, RanksAndProcesses{4, 2},
                                           RanksAndProcesses{4, 4}));

TEST_P(CollectivesOnDevice, HaveTheBitsOfTheCpuInTheOrderOfEvents) {
  for (const bool at_once : {false, true}) {
    const std::vector<at::Tensor> expected = Run(c10::kCPU, at_once);
    for (const std::uint32_t seed : {1, 2, 3, 4}) {
      SetDelays(seed % 2 == 0 ? 0 : 200, seed);
      TakeReport();
      const std::vector<at::Tensor> outputs = Run(kTestDevice, at_once);
      const DeviceReport report = TakeReport();
      EXPECT_TRUE(report.races.empty()) << report.races.front();
      ASSERT_EQ(outputs.size(), expected.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(at::equal(outputs[i], expected[i])) << "output " << i;
      }
    }
  }
}

// The host waits when the test reads an output or ends a stream, and when the emulated edges of the
// test send a piece or end.
TEST_P(CollectivesOnDevice, UseNoMemoryOfTheHost) {
  const auto [ranks, processes] = GetParam();
  TakeReport();
  const int read = static_cast<int>(Run(kTestDevice, true).size());
  const int others = ranks - ranks / processes;  // to which a rank sends over edges
  const int sent = kRoundsAtOnce * (5 * ranks + 2) * others;
  EXPECT_EQ(std::ssize(TakeReport().host_operations),
            read + ranks + sent + processes * (processes - 1));
}

class WaitsOfCollectives : public CollectivesOnDevice {};
INSTANTIATE_TEST_SUITE_P(Processes, WaitsOfCollectives,
                         ::testing::Values(RanksAndProcesses{4, 1}, RanksAndProcesses{2, 2}));

// The root of a broadcast needs none after it, and what others order depends on the threads' order.
TEST_P(WaitsOfCollectives, AreNeeded) {
  const auto [waits, missed] = DropEach(DropWait, [] { Run(kTestDevice, false, 1); });
  EXPECT_GE(10 * missed, 9 * waits);
}

// The sender keeps a message until it is sent, so the uses of its edge are recorded needlessly, and
// some of the receiver are if it is slow.
TEST_P(WaitsOfCollectives, NeedTheUsesOfTheReceiver) {
  const auto [uses, missed] = DropEach(DropRecordedUse, [] { Run(kTestDevice, false, 1); });
  EXPECT_GE(4 * missed, uses);
}

}  // namespace
}  // namespace penstock::testing
