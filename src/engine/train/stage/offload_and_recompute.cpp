#include "train/stage/offload_and_recompute.h"

#include <algorithm>

#include "train/offload/device_pool.h"
#include "train/offload/file_pool.h"

namespace penstock {

std::vector<bool> RecomputedMicrobatches(const Schedule& schedule, int stage) {
  std::vector<bool> microbatches(schedule.indices());
  bool any = false;
  for (const Action& action : schedule.lanes[schedule.placement.rank_of(stage)]) {
    if (action.first.op != Op::kRecompute || action.first.stage != stage) continue;
    microbatches[action.first.microbatch] = any = true;
  }
  return any ? microbatches : std::vector<bool>();
}

Result<std::vector<std::shared_ptr<ActivationPool>>> MakePools(
    const Schedule& schedule, const std::string& folder, const LocalRanks& ranks,
    const std::vector<c10::Device>& devices) {
  std::vector<std::shared_ptr<ActivationPool>> pools(schedule.lanes.size());
  for (const int rank : ranks.here()) {
    const Lane& lane = schedule.lanes[rank];
    const bool offloads = std::any_of(lane.begin(), lane.end(), [](const Action& action) {
      return action.first.op == Op::kOffload;
    });
    if (!offloads) continue;
    const c10::Device device = devices[Index(rank)];
    if (device.is_cpu()) {
      PENSTOCK_TRY(pools[rank], FilePool::Make(folder));
    } else {
      pools[rank] = std::make_shared<DevicePool>(device);
    }
  }
  return pools;
}

}  // namespace penstock
