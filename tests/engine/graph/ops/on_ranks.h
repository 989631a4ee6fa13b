// Threads that have joined a group, for tests of collectives.
#pragma once

#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "base/index.h"
#include "graph/device/device_queue.h"
#include "graph/ops/collective.h"
#include "runtime/collectives/rank_groups.h"
#include "train/message/device_group_memory.h"

namespace penstock::testing {

// Calls run(rank) on one thread per rank. All have joined `group`, and each uses a queue of the
// device.
inline void OnRanks(int ranks, int group, const std::function<void(int rank)>& run,
                    c10::Device device = c10::kCPU) {
  RankGroupMembers members{"ranks", std::vector<int>(Index(ranks)), GroupMemoryOn(device)};
  std::iota(members.ranks.begin(), members.ranks.end(), 0);
  auto ends = std::move(MakeRankGroups({members}, LocalRanks(ranks), nullptr).value().front());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const GroupEndpoint end(group, std::move(ends[Index(rank)]));
      std::optional<DeviceQueue> queue;
      if (!device.is_cpu()) queue.emplace(device).Enter();
      try {
        run(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      if (queue) queue->Synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::testing
